//! Tests of sealed folders; those of checkpoints are in the room that saves them.

use std::path::Path;

use proptest::prelude::*;

use super::manifest::Manifest;
use super::*;

#[test]
fn files_of_a_sealed_folder_are_verified_and_manifests_of_other_programs_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("final");
    let names = ["a/config.json", "b/config.json"];
    let files = names.map(|name| (name.to_string(), b"{}".to_vec()));
    write_sealed(&root, 1, &files).unwrap();
    assert_eq!((verify(&root, "a"), verify(&root, "b"), verify(&root, "")), (Ok(()), Ok(()), Ok(())));
    std::fs::write(root.join("a/config.json"), b"{ }").unwrap();
    let message = verify(&root, "a").unwrap_err();
    assert!(message.contains("a/config.json: has 3 bytes") && message.contains("hint: restore"), "{message}");
    assert!(verify(&root, "").is_err() && verify(&root, "b").is_ok());
    verify_sealed(&root.join("a"), |name| name != "config.json").unwrap();
    // A manifest of another program, then a truncated manifest of this program.
    std::fs::write(root.join("manifest.json"), br#"{"name": "an application"}"#).unwrap();
    assert_eq!(verify(&root, "a"), Ok(()));
    std::fs::write(root.join("manifest.json"), br#"{"format_version": 1, "wri"#).unwrap();
    assert!(verify(&root, "a").unwrap_err().contains("manifest.json: is not a manifest"));
}

fn verify(root: &Path, name: &str) -> Result<(), String> {
    verify_sealed(&root.join(name), |_| true).map_err(|e| e.to_string())
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_a_manifest_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Manifest::parse(&bytes).is_err());
    }
}
