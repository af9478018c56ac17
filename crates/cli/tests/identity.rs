//! `maglor identity` on the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant, SystemTime};

use maglor_identity::{Files, Live, Paths};

fn maglor(dir: &Path, arguments: &str) -> Output {
    command(dir, arguments).output().unwrap()
}

fn command(dir: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maglor"));
    command.current_dir(dir).arg("identity");
    command.args(arguments.split(' '));
    command
}

#[track_caller]
fn done(dir: &Path, arguments: &str) -> String {
    let output = maglor(dir, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(dir: &Path, arguments: &str) -> String {
    let output = maglor(dir, arguments);
    assert!(!output.status.success(), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

const CA: &str = "ca --trust-domain mesh.test --out ca";
const CART: &str = "issue --ca ca --namespace shop --service-account cart --out cart";

fn live(dir: &Path, leaf: &str) -> std::sync::Arc<Live> {
    let file = |name| dir.join(leaf).join(name);
    let paths = Paths {
        certificate: file("certificate.pem"),
        private_key: file("private_key.pem"),
        trust_bundle: file("trust_bundle.pem"),
    };
    let (_, identity, bundle) = Files::open(paths).unwrap();
    Live::new(identity, bundle).unwrap()
}

#[test]
fn an_authority_and_a_workload_are_made_with_private_keys() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(done(dir, CA).contains("authority of mesh.test in ca, valid until 20"));
    let text = done(dir, CART);
    assert!(
        text.contains("spiffe://mesh.test/ns/shop/sa/cart in cart"),
        "{text}"
    );
    let live = live(dir, "cart");
    assert_eq!(
        live.id().unwrap().as_str(),
        "spiffe://mesh.test/ns/shop/sa/cart"
    );
    assert!(live.is_trusted(SystemTime::now()));
    for key in ["ca/ca_key.pem", "cart/private_key.pem"] {
        let mode = fs::metadata(dir.join(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let text = done(dir, "show cart/certificate.pem ca/trust_bundle.pem");
    for part in [
        "1. workload spiffe://mesh.test/ns/shop/sa/cart\n",
        "1. authority spiffe://mesh.test\n",
        "23h59m left",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn what_would_be_lost_or_wrong_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(refused(dir, CART).contains("ca/ca.pem: No such file"));
    done(dir, CA);
    let key = fs::read(dir.join("ca/ca_key.pem")).unwrap();
    assert!(refused(dir, CA).contains("ca/ca_key.pem: the file exists; use --force to replace it"));
    assert_eq!(fs::read(dir.join("ca/ca_key.pem")).unwrap(), key);
    done(dir, CART);
    assert!(refused(dir, CART).contains("cart/private_key.pem: the file exists; use --force"));
    done(
        dir,
        &format!("{CART} --force --ttl 1h --dns cart.test --dns *.cart.test --ip 10.0.0.1"),
    );
    let text = done(dir, "show cart/certificate.pem");
    assert!(
        text.contains("also    DNS cart.test, DNS *.cart.test, IP 10.0.0.1"),
        "{text}"
    );
    assert!(refused(dir, &format!("{CART} --force --ttl 25h")).contains("at most"));
    let foreign = refused(dir, "issue --ca ca --id spiffe://other.test/a --out x");
    assert!(
        foreign.contains("not in the trust domain mesh.test"),
        "{foreign}"
    );
    let name = refused(
        dir,
        "issue --ca ca --namespace a/b --service-account c --out x",
    );
    assert!(name.contains("`/` is not allowed in a path"), "{name}");
    assert!(refused(dir, "show ca/ca_key.pem").contains("ca/ca_key.pem: no certificate"));
    assert!(refused(dir, "rotate --ca ca --finish").contains("no rotation is in progress"));
    done(dir, &format!("{CA} --force"));
    assert_ne!(fs::read(dir.join("ca/ca_key.pem")).unwrap(), key);
    for (text, wrong) in [("", "no private key"), ("-----BEGIN X", "not PEM")] {
        fs::write(dir.join("ca/ca_key.pem"), text).unwrap();
        let error = refused(dir, &format!("{CART} --force"));
        assert!(
            error.contains("ca/ca_key.pem: ") && error.contains(wrong),
            "{error}"
        );
    }
    // Errors of clap have more lines.
    for arguments in [
        "ca --trust-domain Mesh --out ca2",
        "issue --ca ca --out x",
        "issue --ca ca --namespace a --out x",
        "issue --ca ca --id https://a/b --out x",
        "issue --ca ca --namespace a --service-account b --out x --dns a..b",
        "issue --ca ca --namespace a --service-account b --out x --dns a:80",
        "issue --ca ca --namespace a --service-account b --out x --dns *",
    ] {
        assert!(!maglor(dir, arguments).status.success(), "{arguments}");
    }
}

/// Ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_root_is_rotated_while_certificates_are_kept_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    done(dir, CA);
    done(
        dir,
        "issue --ca ca --id spiffe://mesh.test/ns/shop/sa/web --out web",
    );
    let web = dir.join("web/trust_bundle.pem");
    let keep = command(dir, &format!("{CART} --keep-renewed"))
        .spawn()
        .unwrap();
    let _keep = Running(keep);
    let roots = || {
        let text = fs::read_to_string(dir.join("cart/trust_bundle.pem"));
        text.map_or(0, |text| text.matches("BEGIN").count())
    };
    let certificate = || fs::read_to_string(dir.join("cart/certificate.pem")).unwrap_or_default();
    eventually("it is issued", || certificate().contains("END"));
    let first = certificate();
    done(dir, "rotate --ca ca");
    assert!(refused(dir, "rotate --ca ca").contains("a rotation is in progress"));
    eventually("it is issued by the new root", || {
        roots() == 2 && certificate().matches("BEGIN").count() == 2 && certificate() != first
    });
    // A client with only the old root trusts the new certificate: the new root, cross-signed by the old one, is
    // included.
    fs::copy(&web, dir.join("cart/old.pem")).unwrap();
    let paths = Paths {
        certificate: dir.join("cart/certificate.pem"),
        private_key: dir.join("cart/private_key.pem"),
        trust_bundle: dir.join("cart/old.pem"),
    };
    let (_, identity, bundle) = Files::open(paths).unwrap();
    assert!(
        Live::new(identity, bundle)
            .unwrap()
            .is_trusted(SystemTime::now())
    );
    // Clients with both roots still accept the old certificate.
    assert!(dir.join("ca/old_ca_key.pem").exists());
    done(dir, "rotate --ca ca --finish");
    eventually("the old root is gone", || {
        roots() == 1 && certificate().matches("BEGIN").count() == 1
    });
    assert!(live(dir, "cart").is_trusted(SystemTime::now()));
    assert!(!dir.join("ca/old_ca_key.pem").exists());
    fs::copy(dir.join("ca/trust_bundle.pem"), &web).unwrap();
    assert!(
        !live(dir, "web").is_trusted(SystemTime::now()),
        "of the old root"
    );
}

#[test]
fn a_short_life_is_renewed_in_its_course_and_not_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    done(dir, CA);
    // Backdated by five minutes, it has behind it more than 70 % of its validity when it is made.
    let keep = format!("{CART} --keep-renewed --ttl 1m");
    let _keep = Running(command(dir, &keep).spawn().unwrap());
    let certificate = || fs::read_to_string(dir.join("cart/certificate.pem")).unwrap_or_default();
    eventually("it is issued", || certificate().contains("END"));
    let first = certificate();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(certificate(), first);
    // And one of a few seconds is, before it ends.
    let keep =
        "issue --ca ca --namespace shop --service-account web --out web --keep-renewed --ttl 3s";
    let _brief = Running(command(dir, keep).spawn().unwrap());
    let certificate = || fs::read_to_string(dir.join("web/certificate.pem")).unwrap_or_default();
    eventually("it is issued", || certificate().contains("END"));
    let first = certificate();
    eventually("it is renewed", || certificate() != first);
}
