//! Any text is accepted or rejected; an accepted configuration is the same when it is printed and parsed
//! again, and a rejected one has a displayable message.
//!
//! From crates/config, with the examples as seeds:
//!
//! ```text
//! cargo +nightly fuzz run configuration fuzz/corpus/configuration ../../deploy/examples tests/warn tests/bad \
//!     -- -dict=fuzz/configuration.dict -max_total_time=60
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match maglor_config::parse(text, "fuzz.yaml") {
        Ok(loaded) => {
            let again = maglor_config::parse(&loaded.yaml, "printed.yaml");
            let again = again.unwrap_or_else(|errors| panic!("{errors}\nin\n{}", loaded.yaml));
            assert_eq!(loaded.yaml, again.yaml);
            assert_eq!(
                format!("{:?}", loaded.config),
                format!("{:?}", again.config)
            );
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(!errors.to_string().is_empty());
        }
    }
});
