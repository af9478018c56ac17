//! Any text is rejected, or parsed as an id that prints as the same text and has its parts.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_identity::SpiffeId;

fuzz_target!(|text: &str| {
    let Ok(id) = text.parse::<SpiffeId>() else {
        return;
    };
    assert_eq!(id.as_str(), text);
    assert_eq!(format!("spiffe://{}{}", id.trust_domain(), id.path()), text);
    let domain = id.to_trust_domain();
    if let (Some(namespace), Some(account)) = (id.namespace(), id.service_account()) {
        let again = SpiffeId::workload(&domain, namespace, account);
        assert_eq!(again.as_ref(), Ok(&id));
    }
});
