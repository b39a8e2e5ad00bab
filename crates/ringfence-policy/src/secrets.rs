//! Variables of the environment that are hidden unless named, and files that only root reads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Patterns of names that hold credentials, lead to them, or lead to a process of the host that
/// acts for its user; each with the reason. `*` is any run of characters; case does not matter.
pub const HIDDEN: &[(&str, &str)] = &[
    // Credentials by their usual endings.
    ("*TOKEN*", "a credential"),
    ("*_KEY", "a credential"),
    ("*APIKEY*", "a credential"),
    ("*AUTHKEY*", "a credential"),
    ("ID_RSA*", "a credential"),
    ("ID_ED25519*", "a credential"),
    ("*SERVICE_ACCOUNT_JSON", "a credential"),
    ("*API_KEY*", "a credential"),
    ("*ACCESS_KEY*", "a credential"),
    ("*PRIVATE_KEY*", "a credential"),
    ("*SECRET*", "a credential"),
    ("*PASSW*", "a credential"),
    ("*PASSPHRASE*", "a credential"),
    ("*_PASS", "a credential"),
    ("PASS", "a credential"),
    ("*DBPASS", "a credential"),
    ("SSHPASS", "a credential"),
    ("*BINDPW", "a credential"),
    ("*USERPWD", "a credential"),
    ("AUTH", "a credential"),
    ("COOKIE", "a credential"),
    ("PGPASSFILE", "leads to a credential"),
    ("*_PAT", "a credential"),
    ("*_PWD", "a credential"),
    ("*CREDENTIAL*", "a credential"),
    ("*_AUTH", "a credential"),
    ("*_COOKIE", "a credential"),
    ("*_DSN", "an address with a credential in it"),
    ("DSN", "an address with a credential in it"),
    ("*_CONNECTION_STRING", "an address with a credential in it"),
    ("*DATABASE_URL", "an address with a credential in it"),
    ("*DATABASE_URI", "an address with a credential in it"),
    ("*POSTGRES*_URL", "an address with a credential in it"),
    ("*MYSQL_URL", "an address with a credential in it"),
    ("*REDIS_URL", "an address with a credential in it"),
    ("MONGO*_URI", "an address with a credential in it"),
    ("MONGO*_URL", "an address with a credential in it"),
    ("*AMQP_URL", "an address with a credential in it"),
    ("*JDBC_URL", "an address with a credential in it"),
    ("ConnectionStrings__*", "an address with a credential in it"),
    ("*WEBHOOK_URL*", "an address that is a credential"),
    ("*_WEBHOOK", "an address that is a credential"),
    // Credentials by their vendor.
    ("AWS_*", "credentials of a cloud"),
    ("AZURE_*", "credentials of a cloud"),
    ("ARM_CLIENT_*", "credentials of a cloud"),
    ("CLOUDSDK_*", "credentials of a cloud"),
    ("KUBECONFIG", "leads to a credential"),
    ("KUBE*CONFIG_DATA", "a credential"),
    ("DOCKER_AUTH_CONFIG", "a credential"),
    ("DOCKER_CONFIG", "leads to a credential"),
    ("VAULT_*", "credentials of a vault"),
    ("OP_SESSION_*", "a session of a password manager"),
    ("BW_SESSION", "a session of a password manager"),
    ("NETRC", "leads to a credential"),
    ("NPM_CONFIG_USERCONFIG", "leads to a credential"),
    ("NPM_CONFIG_//*", "a credential"),
    ("PIP_INDEX_URL", "an address that may hold a credential"),
    ("PIP_EXTRA_INDEX_URL", "an address that may hold a credential"),
    ("UV_*INDEX*", "an address that may hold a credential"),
    ("TF_VAR_*", "may hold a credential"),
    ("CI_JOB_JWT*", "a credential"),
    ("CI_REPOSITORY_URL", "an address with a credential in it"),
    ("BUNDLE_*__*", "may hold a credential"),
    ("NIX_CONFIG", "may hold a credential"),
    ("VSS_NUGET_EXTERNAL_FEED_ENDPOINTS", "a credential"),
    ("MC_HOST_*", "an address with a credential in it"),
    // Git's own settings, headers of requests among them. Of some of them alone it makes an error.
    ("GIT_CONFIG_PARAMETERS", "may hold a credential"),
    ("GIT_CONFIG_COUNT", "may hold a credential"),
    ("GIT_CONFIG_KEY_*", "may hold a credential"),
    ("GIT_CONFIG_VALUE_*", "may hold a credential"),
    ("ACTIONS_*", "credentials of a build service"),
    // A process of the host that acts for its user.
    ("SSH_AUTH_SOCK", "an agent that signs with the user's keys"),
    ("SSH_AGENT_PID", "an agent that signs with the user's keys"),
    ("GPG_AGENT_INFO", "an agent that signs with the user's keys"),
    ("GNOME_KEYRING_*", "the user's keyring"),
    ("*_ASKPASS*", "a program that asks for credentials"),
    ("VSCODE_GIT_*", "a program that hands out credentials"),
    ("VSCODE_IPC_*", "an editor that runs commands on the host"),
    ("DBUS_*_BUS_ADDRESS", "services that run commands on the host"),
    ("DOCKER_HOST", "a service that is root on the host"),
    ("CONTAINER_HOST", "a service that is root on the host"),
    ("TMUX*", "a terminal that runs commands on the host"),
    ("STY", "a terminal that runs commands on the host"),
    ("XAUTHORITY", "a credential of the desktop"),
    ("KRB5CCNAME", "leads to a credential"),
    // Libraries of the host, most of them not visible inside, that go into every program.
    ("LD_PRELOAD", "a library of the host, not visible inside"),
    ("LD_AUDIT", "a library of the host, not visible inside"),
];

/// Variables that are hidden when their value holds a credential, in capitals; programs read those in small letters as
/// well.
pub const BY_VALUE: [&str; 9] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "FTP_PROXY",
    "NPM_CONFIG_PROXY",
    "NPM_CONFIG_HTTPS_PROXY",
    "PROXY_URL",
    "GOPROXY",
    "CONDA_CHANNELS",
];

/// Why those are hidden.
pub const IN_VALUE: &str = "an address with a credential in it";

/// Whether a name says that an address is behind it: those are hidden when the value holds a credential, whatever they are of.
pub fn is_address(name: &str) -> bool {
    let ends = |end: &&str| {
        let from = name.len().checked_sub(end.len()).and_then(|from| name.get(from..));
        from.is_some_and(|last| last.eq_ignore_ascii_case(end))
    };
    ["URL", "URLS", "URI", "URIS"].iter().any(ends)
}

/// The same of a value that may be anything: with the scheme (not `mailto:ada@example.org`, `image:1@sha256:…`).
pub fn is_address_with_password(value: &OsStr) -> bool {
    value.as_bytes().windows(3).any(|three| three == b"://") && with_password(value)
}

/// Whether one of the addresses in a value has a password: `SCHEME://USER:PASSWORD@HOST`, also without the scheme.
pub fn with_password(value: &OsStr) -> bool {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'|');
    value.as_bytes().split(separates).any(|address| {
        let scheme = address.windows(3).position(|three| three == b"://");
        let rest = &address[scheme.map_or(0, |at| at + 3)..];
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let authority = &rest[..end.unwrap_or(rest.len())];
        let user = authority.iter().rposition(|&byte| byte == b'@').map(|at| &authority[..at]);
        user.is_some_and(|user| user.contains(&b':'))
    })
}

/// Patterns of names that a pattern of [`HIDDEN`] covers and that hold no credential.
pub const HARMLESS: &[&str] = &[
    "AWS_CA_BUNDLE",
    "AWS_DEFAULT_OUTPUT",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_PAGER",
    "AWS_REGION",
    "BUNDLE_BUILD__*",
    "BUNDLE_GEM__*",
    "BUNDLE_LOCAL__*",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLOUDSDK_PYTHON",
    "MAX_THINKING_TOKENS",
    "TOKENIZERS_PARALLELISM",
    "VAULT_SKIP_VERIFY",
];

/// What a variable tells the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// A file or directory that is usually here, below the home.
    Usually(&'static str),
    /// What has no usual place there, whatever its name.
    Of(&'static str),
}

/// Variables that tell where credentials are, or a directory with some in it. Those of [`HIDDEN`] that lead to a
/// credential are among them. `KUBECONFIG` is a list.
pub const LEADS: &[(&str, Lead)] = &[
    ("AWS_CONFIG_FILE", Lead::Usually(".aws/config")),
    ("AWS_SHARED_CREDENTIALS_FILE", Lead::Usually(".aws/credentials")),
    ("AZURE_CONFIG_DIR", Lead::Usually(".azure")),
    ("BOTO_CONFIG", Lead::Usually(".boto")),
    ("CARGO_HOME", Lead::Usually(".cargo")),
    ("CLAUDE_CONFIG_DIR", Lead::Usually(".claude")),
    ("CLOUDSDK_CONFIG", Lead::Usually(".config/gcloud")),
    ("CODEX_HOME", Lead::Usually(".codex")),
    ("COMPOSER_HOME", Lead::Usually(".config/composer")),
    ("DATABRICKS_CONFIG_FILE", Lead::Usually(".databricks.cfg")),
    ("DOCKER_CONFIG", Lead::Usually(".docker")),
    ("GH_CONFIG_DIR", Lead::Usually(".config/gh")),
    ("GLAB_CONFIG_DIR", Lead::Usually(".config/glab-cli")),
    ("GNUPGHOME", Lead::Usually(".gnupg")),
    ("GOOGLE_APPLICATION_CREDENTIALS", Lead::Of("a cloud's")),
    ("GRADLE_USER_HOME", Lead::Usually(".gradle")),
    ("HELM_REGISTRY_CONFIG", Lead::Of("registries'")),
    ("HF_TOKEN_PATH", Lead::Usually(".cache/huggingface/token")),
    ("HISTFILE", Lead::Of("what was typed")),
    ("ICEAUTHORITY", Lead::Usually(".ICEauthority")),
    ("KAGGLE_CONFIG_DIR", Lead::Usually(".kaggle")),
    ("KRB5CCNAME", Lead::Of("of Kerberos")),
    ("KUBECONFIG", Lead::Usually(".kube/config")),
    ("MAIL", Lead::Of("the mail")),
    ("NETRC", Lead::Usually(".netrc")),
    ("NPM_CONFIG_USERCONFIG", Lead::Usually(".npmrc")),
    ("OCI_CLI_CONFIG_FILE", Lead::Usually(".oci/config")),
    ("PASSWORD_STORE_DIR", Lead::Usually(".password-store")),
    ("PGPASSFILE", Lead::Usually(".pgpass")),
    ("PIP_CONFIG_FILE", Lead::Usually(".config/pip/pip.conf")),
    ("RCLONE_CONFIG", Lead::Usually(".config/rclone/rclone.conf")),
    ("REGISTRY_AUTH_FILE", Lead::Usually(".config/containers/auth.json")),
    ("SOPS_AGE_KEY_FILE", Lead::Usually(".config/sops/age/keys.txt")),
    ("TF_CLI_CONFIG_FILE", Lead::Usually(".terraformrc")),
    ("WGETRC", Lead::Usually(".wgetrc")),
    ("XAUTHORITY", Lead::Usually(".Xauthority")),
];

/// The places that a variable tells, if it is one of those; case does not matter, as it does not to npm.
pub fn leads(name: &str, value: &OsStr) -> Vec<(PathBuf, Lead)> {
    let Some((variable, lead)) = LEADS.iter().find(|(lead, _)| lead.eq_ignore_ascii_case(name))
    else {
        return Vec::new();
    };
    let bytes = value.as_bytes();
    let values: Vec<&[u8]> = match *variable {
        "KUBECONFIG" => bytes.split(|&byte| byte == b':').collect(),
        "KRB5CCNAME" => {
            let kinds = [&b"FILE:"[..], b"DIR:"];
            vec![kinds.iter().find_map(|kind| bytes.strip_prefix(*kind)).unwrap_or(bytes)]
        }
        _ => vec![bytes],
    };
    let places = values.into_iter().filter(|value| !value.is_empty());
    places.map(|value| (PathBuf::from(OsStr::from_bytes(value)), *lead)).collect()
}

/// What an empty environment (`--clean-env`) still holds: without these, programs find neither
/// each other nor their terminal. A rule that hides one of them by name holds.
pub const KEPT: [&str; 6] = ["PATH", "HOME", "TERM", "LANG", "USER", "LOGNAME"];

/// Variables that name a socket; granting the socket passes the variable on.
pub const SOCKET_VARIABLES: &[&str] =
    &["SSH_AUTH_SOCK", "DOCKER_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS"];

/// What an ordinary user cannot read and root could: hidden from a sandbox started by root, so
/// that being root opens nothing. Each with the reason.
pub const ROOT_ONLY: &[(&str, &str)] = &[
    ("/etc/shadow", "password hashes"),
    ("/etc/shadow-", "password hashes"),
    ("/etc/gshadow", "password hashes"),
    ("/etc/gshadow-", "password hashes"),
    ("/etc/security/opasswd", "password hashes"),
    ("/etc/sudoers", "who may become root"),
    ("/etc/sudoers.d", "who may become root"),
    ("/etc/ssh/ssh_host_*_key", "the host's identity"),
    ("/etc/ssl/private", "private keys"),
    ("/etc/pki/tls/private", "private keys"),
    ("/etc/letsencrypt", "private keys"),
    ("/etc/krb5.keytab", "the host's identity"),
    ("/etc/wireguard", "private keys"),
    ("/etc/openvpn", "private keys"),
    ("/etc/ipsec.secrets", "private keys"),
    ("/etc/ppp/chap-secrets", "passwords"),
    ("/etc/NetworkManager/system-connections", "passwords"),
    ("/etc/wpa_supplicant", "passwords"),
    ("/etc/netplan", "passwords"),
    ("/etc/docker", "registry credentials and keys"),
    ("/etc/kubernetes", "cluster credentials"),
    ("/etc/rancher", "cluster credentials"),
    ("/etc/credstore", "service credentials"),
    ("/etc/credstore.encrypted", "service credentials"),
    ("/etc/mysql/debian.cnf", "a database password"),
    ("/etc/apt/auth.conf", "repository credentials"),
    ("/etc/apt/auth.conf.d", "repository credentials"),
];

/// The reason why a variable of this name is hidden, if it is.
pub fn hidden(name: &str) -> Option<&'static str> {
    if HARMLESS.iter().any(|harmless| crate::glob::name(harmless.as_bytes(), name.as_bytes())) {
        return None;
    }
    let found = HIDDEN.iter().find(|(pattern, _)| crate::glob::name_ignoring_case(pattern, name));
    found.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden() {
        let names = [
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "npm_token",
            "OPENAI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_PROFILE",
            "DB_PASSWORD",
            "PGPASSWORD",
            "DATABASE_URL",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "KUBECONFIG",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "TMUX",
            "TMUX_PANE",
            "SENTRY_DSN",
            "NPM_CONFIG__AUTH",
            "LD_PRELOAD",
            "SLACK_WEBHOOK_URL",
            "HF_TOKEN",
            "CLIENT_SECRET",
            "STRIPE_SECRET_KEY",
            "MONGODB_URI",
            "SUDO_ASKPASS",
            "SSHPASS",
            "PASS",
            "DBPASS",
            "CI_JOB_JWT_V2",
            "CI_REPOSITORY_URL",
            "BUNDLE_GITHUB__COM",
            "NIX_CONFIG",
            "VSS_NUGET_EXTERNAL_FEED_ENDPOINTS",
            "LDAP_BINDPW",
            "JDBC_URL",
            "MC_HOST_x",
            "GIT_CONFIG_PARAMETERS",
            "GIT_CONFIG_VALUE_0",
            "ConnectionStrings__Default",
            "DISCORD_WEBHOOK",
            "TS_AUTHKEY",
            "POSTGRES_URL",
            "POSTGRESQL_ADDON_URL",
            "MYSQL_URL",
            "SQLALCHEMY_DATABASE_URI",
            "CLOUDAMQP_URL",
            "KUBE_CONFIG_DATA",
            "KUBECONFIG_DATA",
            "ID_RSA",
            "GOOGLE_SERVICE_ACCOUNT_JSON",
        ];
        for name in names {
            assert!(hidden(name).is_some(), "{name} is shown");
        }
    }

    #[test]
    fn addresses_with_a_password_are_known() {
        for with in [
            "http://u:p@h:1",
            "socks5://:p@h",
            "u:p@h:1",
            "https://a/x,https://u:p@h/simple",
            "http://u:p@ss@h",
            "off|https://u:p@h",
        ] {
            assert!(with_password(OsStr::new(with)), "{with}");
        }
        for without in
            ["", "http://h:1", "http://u@h:1", "https://h/a:b@c", "direct", "https://h?x=a:b@c"]
        {
            assert!(!with_password(OsStr::new(without)), "{without}");
        }
    }

    #[test]
    fn addresses_of_anything_are_known_by_name_and_scheme() {
        assert!(["CELERY_BROKER_URL", "smtp_url", "X_URI", "URLS"].into_iter().all(is_address));
        assert!(!["URLX", "HOST", "", "ü", "URL_OF"].into_iter().any(is_address));
        let with = |value: &str| is_address_with_password(OsStr::new(value));
        assert!(with("smtp://me:hush@h:25") && with("https://a, http://elastic:hush@h:9200"));
        assert!(
            !["mailto:a@b.example", "image:1@sha256:ab", "http://h/a:b@c"].into_iter().any(with)
        );
    }

    #[test]
    fn what_leads_to_a_credential_is_known_by_the_place_it_tells() {
        let leading = HIDDEN.iter().filter(|(_, why)| *why == "leads to a credential");
        let names: Vec<&str> = leading.map(|(name, _)| *name).collect();
        assert!(names.len() >= 6, "{names:?}");
        for name in names {
            assert!(LEADS.iter().any(|(lead, _)| *lead == name), "{name}");
        }
        let of = |name: &str, value: &str| -> Vec<String> {
            let leads = leads(name, OsStr::new(value)).into_iter();
            leads.map(|(place, _)| place.display().to_string()).collect()
        };
        assert_eq!(of("KUBECONFIG", "/a:/b::c"), ["/a", "/b", "c"]);
        assert_eq!(of("KRB5CCNAME", "FILE:/tmp/x"), ["/tmp/x"]);
        assert_eq!(of("npm_config_userconfig", "/a:b"), ["/a:b"]);
        assert_eq!((of("PATH", "/bin"), of("NETRC", "")), (vec![], vec![]));
    }

    #[test]
    fn ordinary_names_are_shown() {
        let names = [
            "PATH",
            "HOME",
            "LANG",
            "TERM",
            "USER",
            "PWD",
            "OLDPWD",
            "SHELL",
            "EDITOR",
            "TMPDIR",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "AWS_CA_BUNDLE",
            "AWS_REGION",
            "REQUESTS_CA_BUNDLE",
            "CARGO_HOME",
            "GOPATH",
            "GOPROXY",
            "JAVA_HOME",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "CI",
            "LD_LIBRARY_PATH",
            "XDG_CONFIG_HOME",
            "KEYBOARD",
            "MONKEY",
            "TOKENIZERS_PARALLELISM",
            "COLORTERM",
            "LS_COLORS",
            "DISPLAY",
            "AUTHOR",
            "GIT_AUTHOR_NAME",
            "COMPASS",
            "PASSAGE",
            "SSH_CONNECTION",
            "RUSTFLAGS",
            "NO_PROXY",
            "KEYMAP",
            "PATTERN",
            "BYPASS",
            "BUNDLE_BUILD__NOKOGIRI",
            "BUNDLE_PATH",
            "GIT_CONFIG_GLOBAL",
            "HTTPS_PROXY",
            "ELASTICSEARCH_URL",
            "BASE_URL",
            "CURL",
        ];
        for name in names {
            assert_eq!(hidden(name), None, "{name} is hidden");
        }
    }
}
