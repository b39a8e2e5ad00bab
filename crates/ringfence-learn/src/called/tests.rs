//! What names say, and how directories are looked through.

use super::*;

#[test]
fn a_name_can_say_that_it_is_a_credential() {
    for name in [
        "credentials.json",
        ".credentials",
        "client_secret.json",
        "access-token",
        "tokens.db",
        "passwords.txt",
        "id_ed25519",
        "server.pem",
        "tls.key",
        "vault.kdbx",
        "auth.json",
        ".sqlite_history",
        "OAuth.dat",
        ".env",
        ".env.local",
        "terraform.tfstate",
        "prod.auto.tfvars",
        "prod.env",
        "deploy_key",
        "service-account.json",
        "id_rsa.bak",
        "id_rsa_work",
        "id_ed25519~",
        "cookies.sqlite",
        "cookies.txt",
        "Cookies",
        "kubeconfig",
        "kubeconfig-prod.yaml",
        "client.ovpn",
        "wallet.json",
        "private.asc",
        "secring.gpg",
        "app.p8",
        "key.der",
        "master_key",
        "privatekey.txt",
        "signing-key.json",
        "mysecrets.yml",
        "dbpass.txt",
        ".pgpass.bak",
        ".netrc.old",
        "old/.ssh/config",
        "old/.config/gh/hosts.yml",
        "deploy/secrets/database.yml",
        "deploy/secrets/a/b",
        "deploy/Prod-Secrets/a/b",
        "my_credentials/a",
    ] {
        assert!(by_name(&Path::new("/home/u/x").join(name)).is_some(), "{name}");
    }
    for name in [
        "id_ed25519.pub",
        "tokenizer.json",
        "token.py",
        "secrets.rs",
        "cacert.pem",
        "secretary",
        ".env.example",
        ".envrc",
        "env",
        "keys",
        "history",
        "config",
        "settings.json",
        "monkey",
        "authors",
        "special_tokens_map.json",
        "requests_oauthlib",
        "roots.pem",
        "site-packages/a/api_key.json",
        ".cargo/registry/src/a/tests/server.pem",
        "repo/.git/refs/heads/fix-token",
        "repo/.git/logs/refs/heads/fix-token",
        "example.env",
        "public_key",
        "key",
        "compass",
        "primary.key.rs",
        "old/.ssh/known_hosts",
        "secrets/lib.rs",
        "secretsanta/list.txt",
        "password-reset/mail.txt",
        "Cookbook.txt",
        "service-account.md",
        "private.txt.gz",
        "a.bak",
        ".config/ghi/hosts.yml",
    ] {
        assert!(by_name(&Path::new("/home/u/x").join(name)).is_none(), "{name}");
    }
}

#[test]
fn a_private_key_is_known_by_what_is_in_it() {
    for text in [
        "-----BEGIN PRIVATE KEY-----\nMII\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\r\nb3B\r\n",
        "Bag Attributes\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        "# created: today\nAGE-SECRET-KEY-1QQ\n",
    ] {
        assert!(is_key(text.as_bytes()), "{text}");
    }
    for text in ["", "-----BEGIN CERTIFICATE-----\n", "a \"-----BEGIN PRIVATE KEY-----\"\n"] {
        assert!(!is_key(text.as_bytes()), "{text}");
    }
}

#[test]
fn a_directory_is_looked_through_to_any_depth() {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path();
    let deep = root.join("a/b/c/d/e/f");
    for directory in [&deep, &root.join("plain/x/y"), &root.join("kept/.aws"), &root.join("key/x")]
    {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    std::fs::write(deep.join("prod.env"), "").expect("a file");
    std::fs::write(root.join("plain/x/y/notes"), "notes").expect("a file");
    std::fs::write(root.join("kept/.aws/config"), "").expect("a file");
    std::fs::write(root.join("key/x/plain"), "-----BEGIN PRIVATE KEY-----\n").expect("a file");
    std::os::unix::fs::symlink("../a", root.join("plain/link")).expect("a link");
    std::fs::create_dir(root.join("led")).expect("a directory");
    std::os::unix::fs::symlink("../plain/x/y/notes", root.join("led/prod.env")).expect("a link");
    std::os::unix::fs::symlink("gone", root.join("plain/.env")).expect("a link");
    std::os::unix::fs::symlink("/dev/null", root.join("plain/id_rsa")).expect("a link");
    let has = |looking: &mut Looking, name: &str| looking.has(&root.join(name));
    for first in ["", "a", "plain"] {
        let looking = &mut Looking::default();
        has(looking, first);
        for name in ["", "a", "a/b/c", "a/b/c/d/e/f", "kept", "key", "key/x", "led", "plain/link"] {
            assert_eq!(has(looking, name), Has::Some, "{name} after {first}");
        }
        for name in ["plain", "plain/x/y", "plain/x/y/notes", "gone"] {
            assert_eq!(has(looking, name), Has::None, "{name} after {first}");
        }
    }
}

#[test]
fn what_is_too_much_to_look_through_is_not_known() {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path();
    std::fs::create_dir(root.join("few")).expect("a directory");
    for name in 0..40 {
        std::fs::write(root.join(format!("{name}.txt")), "").expect("a file");
    }
    let looking = &mut Looking { names: 30, ..Looking::default() };
    assert_eq!(looking.has(&root.join("few")), Has::None);
    assert_eq!(looking.has(root), Has::Unknown);
    assert_eq!(looking.has(&root.join("0.txt")), Has::None, "it is none");
    assert_eq!((looking.names, looking.has(&root.join("few"))), (0, Has::None), "as before");
    std::fs::write(root.join("few/x"), "").expect("a file");
    assert_eq!(Looking { names: 0, ..Looking::default() }.has(&root.join("few")), Has::Unknown);
}
