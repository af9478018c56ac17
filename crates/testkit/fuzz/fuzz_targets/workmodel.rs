//! Any text is accepted as a work model or refused in one line; what is accepted is the same when it is
//! printed and read again, and can be drawn from.
//!
//! From crates/testkit:
//!
//! ```text
//! cargo +nightly fuzz run workmodel -- -max_total_time=60
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_testkit::app::{Deployment, WorkModel};

fuzz_target!(|text: &str| {
    match WorkModel::parse(text) {
        Ok(model) => {
            let printed = serde_json::to_string(&model).expect("a work model is plain data");
            assert_eq!(WorkModel::parse(&printed).as_ref(), Ok(&model));
            for (name, service) in model.services() {
                assert!(!service.host(name).is_empty() || name.is_empty());
                assert!(service.work().mean.as_secs() <= 3600);
                assert!(service.workers() > 0);
            }
            // Any text: nothing but an answer is asked for.
            let _ = Deployment::parse(text, &model);
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }
});
