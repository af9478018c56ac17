//! Any text is refused, or printed with sidecars; printed again, it stays as it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_manifests::inject::{Settings, manifest};

fuzz_target!(|text: &str| {
    let settings = Settings::default();
    match manifest::inject_all(text, &settings) {
        Ok(done) => {
            let again = manifest::inject_all(&done.text, &settings);
            let again = again.unwrap_or_else(|error| panic!("{error}\nin\n{}", done.text));
            assert_eq!(done.text, again.text);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
