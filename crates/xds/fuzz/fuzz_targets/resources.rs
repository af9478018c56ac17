//! Any bytes are a resource or are refused; what is taken can be sent on, and means the same then.
//!
//! The first byte chooses the kind. From crates/xds:
//!
//! ```text
//! cargo +nightly fuzz run resources -- -max_total_time=60
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_config::resource;
use maglor_xds::frame::Deframer;
use maglor_xds::{decode, encode};

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    match kind % 6 {
        0 => cluster(body),
        1 => drop(decode::usable_endpoints("a", body)),
        2 => drop(decode::listener("a", body)),
        3 => routes(body),
        4 => drop(decode::inbound("a", body)),
        _ => {
            let mut deframer = Deframer::new(1000);
            deframer.put(body);
            while let Ok(Some(message)) = deframer.message() {
                assert!(message.len() <= 1000);
            }
        }
    }
});

fn cluster(body: &[u8]) {
    let Ok(first) = decode::cluster("a", body) else {
        return;
    };
    let Ok(meant) = resource::cluster(&first.raw, true) else {
        return;
    };
    let sent = encode::cluster(&first.raw).expect("what was read can be sent");
    let again = decode::cluster("a", &sent.body).expect("what is sent can be read");
    let understood = resource::cluster(&again.raw, true).expect("it is as good as it was");
    assert_eq!(format!("{understood:?}"), format!("{meant:?}"));
}

fn routes(body: &[u8]) {
    let Ok(first) = decode::routes("a", body) else {
        return;
    };
    let Ok(meant) = resource::routes(&first) else {
        return;
    };
    let sent = encode::routes(&first).expect("what was read can be sent");
    let again = decode::routes("a", &sent.body).expect("what is sent can be read");
    let understood = resource::routes(&again).expect("it is as good as it was");
    assert_eq!(format!("{understood:?}"), format!("{meant:?}"));
}
