//! Any input of the webhook is rejected or answered, and injecting the resulting pod again changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_manifests::inject::review::{Review, Verdict};
use maglor_manifests::inject::{Namespace, Outcome, Settings, inject, patch};
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let Ok(review) = Review::read(body) else {
        return;
    };
    let namespace = Namespace {
        enabled: Some(true),
        ..Namespace::default()
    };
    let settings = Settings::default();
    let verdict = match inject(&review.object, &namespace, &settings) {
        Ok(Outcome::Injected(injected)) => {
            let again = inject(&injected.pod, &namespace, &settings);
            assert!(matches!(again, Ok(Outcome::Skipped(_))));
            Verdict::Allowed {
                patch: patch(&review.object, &injected.pod),
                warnings: injected.notes,
            }
        }
        Ok(Outcome::Repaired(injected)) => Verdict::Allowed {
            patch: patch(&review.object, &injected.pod),
            warnings: injected.notes,
        },
        Ok(Outcome::Skipped(why)) => Verdict::Denied {
            reason: why.to_string(),
        },
        Err(refusal) => Verdict::Denied {
            reason: refusal.to_string(),
        },
    };
    let answer = review.answer(verdict, |bytes| Value::from(bytes));
    assert_eq!(answer["response"]["uid"], review.uid.as_str());
});
