//! The kept hostile suite against the commands that read files: each case of `maglor_testkit::hostile::yaml` has its expected
//! outcome, and none takes the processor or memory of the machine. See docs/hostile.md.

use std::path::Path;

use maglor_testkit::hostile::{self, Yaml};

#[test]
fn files_in_yaml() {
    let cases = hostile::yaml();
    assert!(cases.len() > 150, "{}", cases.len());
    let folder = tempfile::tempdir().unwrap();
    let failed = cases.iter().filter_map(|case| {
        let seen = Yaml::run(case, Path::new(env!("CARGO_BIN_EXE_maglor")), folder.path());
        hostile::check_yaml(case, &seen).err()
    });
    let failed: Vec<_> = failed.collect();
    let count = failed.len();
    assert!(failed.is_empty(), "{count} cases:\n{}", failed.join("\n"));
}
