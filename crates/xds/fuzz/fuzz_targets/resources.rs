//! Any bytes are a resource or are refused, and nothing panics: not reading them, not checking what
//! they say, not sending it on.
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
    if let Ok(decoded) = decode::cluster("a", body) {
        drop(resource::cluster(&decoded.raw, true));
        drop(encode::cluster(&decoded.raw));
    }
}

fn routes(body: &[u8]) {
    if let Ok(decoded) = decode::routes("a", body) {
        drop(resource::routes(&decoded));
        drop(encode::routes(&decoded));
    }
}
