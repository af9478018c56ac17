use std::process::Command;

use super::*;

#[test]
fn names_are_completed_as_kubernetes_does() {
    for (short, full) in [
        ("maglor-proxy", "docker.io/library/maglor-proxy:latest"),
        ("maglor-proxy:dev", "docker.io/library/maglor-proxy:dev"),
        ("team/app:1", "docker.io/team/app:1"),
        ("registry.example/a/b:1", "registry.example/a/b:1"),
        ("localhost/app", "localhost/app:latest"),
        (
            "registry.example:5000/app",
            "registry.example:5000/app:latest",
        ),
    ] {
        assert_eq!(full_name(short), full);
    }
}

#[test]
fn shared_libraries_go_along() {
    let image = Image::of_linked_program("sh:1", Path::new("/bin/sh")).unwrap();
    let inside = |part: &str| image.files.iter().any(|(_, inside)| inside.contains(part));
    assert!(
        inside("/sh") && inside("libc.so") && inside("ld-linux"),
        "{image:?}"
    );
    assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffd)"), None);
}

/// The system's `tar` reads an archive; the layer has the digest that the configuration names.
#[test]
fn an_archive_holds_its_files_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // One block exactly, a little more, and nothing.
    for size in [BLOCK, BLOCK + 1, 0] {
        fs::write(path("program"), vec![b'x'; size]).unwrap();
        let image = Image::of_program("app:1", &path("program"));
        image.write(&path("image.tar")).unwrap();
        fs::create_dir_all(path("out")).unwrap();
        let untar = |archive: &Path| {
            let mut tar = Command::new("tar");
            tar.args(["-xf"]).arg(archive).arg("-C").arg(path("out"));
            assert!(tar.status().unwrap().success());
        };
        untar(&path("image.tar"));
        let json = |name: &str| -> serde_json::Value {
            serde_json::from_slice(&fs::read(path("out").join(name)).unwrap()).unwrap()
        };
        let manifest = json("manifest.json");
        assert_eq!(manifest[0]["RepoTags"][0], "docker.io/library/app:1");
        let config = json(manifest[0]["Config"].as_str().unwrap());
        assert_eq!(config["config"]["Entrypoint"][0], "/program");
        let layer = fs::read(path("out/layer.tar")).unwrap();
        let digest = hex(digest::digest(&digest::SHA256, &layer).as_ref());
        let said = config["rootfs"]["diff_ids"][0].as_str().unwrap();
        assert_eq!(said, format!("sha256:{digest}"));
        untar(&path("out/layer.tar"));
        assert_eq!(fs::read(path("out/program")).unwrap().len(), size);
        assert!(path("out/tmp").is_dir());
    }
}

#[test]
fn a_path_that_does_not_fit_is_refused() {
    let mut tar = Tar::new(Vec::new());
    for length in [100, 101, 200] {
        let path = "p".repeat(length);
        let written = tar.file(&path, 0o644, 0, &mut io::empty());
        assert_eq!(written.is_ok(), length <= 100, "{length}");
    }
}
