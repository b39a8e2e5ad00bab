//! Where credentials are: the tables, and the rule for what no table can know.

use std::path::Path;

/// Below the home: credentials, where programs keep what speaks for their user, and what was typed.
pub(crate) const SECRETS: [(&str, &str); 205] = [
    (".ssh", "keys of ssh"),
    (".gnupg", "keys of GnuPG"),
    (".aws", "a cloud's"),
    (".azure", "a cloud's"),
    (".config/gcloud", "a cloud's"),
    (".config/doctl", "a cloud's"),
    (".config/hcloud", "a cloud's"),
    (".oci", "a cloud's"),
    (".kube", "a cluster's"),
    (".docker/config.json", "registries'"),
    (".config/containers/auth.json", "registries'"),
    (".netrc", "of many programs"),
    (".git-credentials", "git's"),
    (".config/git/credentials", "git's"),
    (".config/gh", "GitHub's"),
    (".config/glab-cli", "GitLab's"),
    (".config/hub", "GitHub's"),
    (".npmrc", "npm's"),
    (".yarnrc.yml", "yarn's"),
    (".pypirc", "PyPI's"),
    (".config/pip/pip.conf", "an index's"),
    (".cargo/credentials", "cargo's"),
    (".cargo/credentials.toml", "cargo's"),
    (".gem/credentials", "RubyGems'"),
    (".m2/settings.xml", "Maven's"),
    (".m2/settings-security.xml", "Maven's"),
    (".gradle/gradle.properties", "Gradle's"),
    (".pgpass", "a database's"),
    (".my.cnf", "a database's"),
    (".vault-token", "a vault's"),
    (".terraform.d/credentials.tfrc.json", "Terraform's"),
    (".config/rclone", "storage's"),
    (".config/op", "a password manager's"),
    (".password-store", "a password manager's"),
    (".local/share/keyrings", "the keyring"),
    (".local/share/kwalletd", "the keyring"),
    (".mozilla", "a browser's sessions"),
    (".config/google-chrome", "a browser's sessions"),
    (".config/chromium", "a browser's sessions"),
    (".config/BraveSoftware", "a browser's sessions"),
    (".bash_history", "what was typed"),
    (".zsh_history", "what was typed"),
    (".config/age", "keys of age"),
    (".config/sops/age/keys.txt", "keys of age"),
    (".step/secrets", "keys of step"),
    (".putty", "keys of PuTTY"),
    (".config/github-copilot", "GitHub's"),
    (".config/helm/registry", "registries'"),
    (".minikube", "a cluster's"),
    (".s3cfg", "storage's"),
    (".boto", "a cloud's"),
    (".config/stripe/config.toml", "Stripe's"),
    (".config/ngrok/ngrok.yml", "ngrok's"),
    (".cloudflared", "Cloudflare's"),
    (".config/wrangler", "Cloudflare's"),
    (".config/.wrangler", "Cloudflare's"),
    (".wrangler/config", "Cloudflare's"),
    (".fly/config.yml", "Fly's"),
    (".config/vercel", "Vercel's"),
    (".local/share/com.vercel.cli/auth.json", "Vercel's"),
    (".netlify", "Netlify's"),
    (".config/netlify/config.json", "Netlify's"),
    (".config/heroku", "Heroku's"),
    (".sentryclirc", "Sentry's"),
    (".databricks.cfg", "a database's"),
    (".snowflake", "a database's"),
    (".config/snowflake", "a database's"),
    (".mylogin.cnf", "a database's"),
    (".cache/huggingface/token", "Hugging Face's"),
    (".cache/huggingface/stored_tokens", "Hugging Face's"),
    (".huggingface/token", "Hugging Face's"),
    (".kaggle/kaggle.json", "Kaggle's"),
    (".config/kaggle/kaggle.json", "Kaggle's"),
    (".config/pypoetry/auth.toml", "Poetry's"),
    (".composer/auth.json", "Composer's"),
    (".config/composer/auth.json", "Composer's"),
    (".nuget/NuGet/NuGet.Config", "NuGet's"),
    (".config/NuGet/NuGet.Config", "NuGet's"),
    (".hex/hex.config", "Hex's"),
    (".config/hex/hex.config", "Hex's"),
    (".msmtprc", "of mail"),
    (".config/msmtp", "of mail"),
    (".fetchmailrc", "of mail"),
    (".mbsyncrc", "of mail"),
    (".thunderbird", "of mail, and the mail"),
    ("Maildir", "the mail"),
    ("Mail", "the mail"),
    ("mbox", "the mail"),
    (".config/evolution", "of mail"),
    (".local/share/evolution", "of mail, and the mail"),
    (".config/Code/User/globalStorage", "an editor's accounts"),
    (".docker/contexts", "keys of Docker's hosts"),
    (".databrickscfg", "a cloud's"),
    (".vault_pass", "of Ansible"),
    (".config/scw", "a cloud's"),
    (".config/linode-cli", "a cloud's"),
    (".config/argocd", "a cluster's"),
    (".config/tea", "of a git host"),
    (".config/exercism", "an account's"),
    (".config/rbw", "a password manager's"),
    (".config/atuin", "what was typed"),
    (".config/openai", "a model's"),
    (".openai", "a model's"),
    (".local/share/signal-cli", "a messenger's"),
    (".cvspass", "of CVS"),
    (".ngrok2", "a tunnel's"),
    (".dbt", "of databases"),
    (".snowsql", "of databases"),
    (".bunfig.toml", "of a package registry"),
    (".bundle/config", "of a package registry"),
    (".config/Signal", "a messenger's"),
    (".local/share/TelegramDesktop", "a messenger's"),
    (".config/Slack", "a messenger's"),
    (".config/discord", "a messenger's"),
    (".config/KeePassXC", "a password manager's"),
    (".config/keepassxc", "a password manager's"),
    (".cache/keepassxc", "a password manager's"),
    (".config/Bitwarden", "a password manager's"),
    (".config/Bitwarden CLI", "a password manager's"),
    (".config/1Password", "a password manager's"),
    (".electrum", "a wallet's"),
    (".bitcoin", "a wallet's"),
    (".ethereum/keystore", "a wallet's"),
    (".config/solana", "a wallet's"),
    (".config/google-chrome-beta", "a browser's sessions"),
    (".config/microsoft-edge", "a browser's sessions"),
    (".config/vivaldi", "a browser's sessions"),
    (".config/opera", "a browser's sessions"),
    (".librewolf", "a browser's sessions"),
    (".env", "variables of the user's"),
    (".local/share/fish/fish_history", "what was typed"),
    (".psql_history", "what was typed"),
    (".mysql_history", "what was typed"),
    (".mariadb_history", "what was typed"),
    (".sqlite_history", "what was typed"),
    (".rediscli_history", "what was typed"),
    (".node_repl_history", "what was typed"),
    (".python_history", "what was typed"),
    (".irb_history", "what was typed"),
    (".local/share/irb/history", "what was typed"),
    (".authinfo", "of many programs"),
    (".authinfo.gpg", "of many programs"),
    (".smbcredentials", "of file servers"),
    (".wgetrc", "of many programs"),
    (".curlrc", "of many programs"),
    (".envrc", "variables of the user's"),
    (".rhosts", "who may log in"),
    (".pki", "keys of certificates"),
    (".vnc", "of remote desktops"),
    (".config/remmina", "of remote desktops"),
    (".local/share/remmina", "of remote desktops"),
    (".config/freerdp", "of remote desktops"),
    (".config/filezilla", "of file servers"),
    (".config/Nextcloud", "of file servers"),
    (".config/syncthing", "keys of Syncthing"),
    (".local/state/syncthing", "keys of Syncthing"),
    (".config/borg", "keys of backups"),
    (".config/restic", "keys of backups"),
    (".config/transmission", "of remote control"),
    (".subversion/auth", "Subversion's"),
    (".subversion/servers", "Subversion's"),
    (".hgrc", "Mercurial's"),
    (".terraformrc", "Terraform's"),
    (".pulumi/credentials.json", "Pulumi's"),
    (".ansible/vault", "a vault's"),
    (".vagrant.d/insecure_private_key", "keys of ssh"),
    (".vagrant.d/insecure_private_keys", "keys of ssh"),
    (".config/nix/nix.conf", "Nix's"),
    (".config/nix/netrc", "Nix's"),
    (".local/share/python_keyring", "the keyring"),
    (".config/pgcli", "a database's"),
    (".config/spotify", "a service's"),
    (".muttrc", "of mail"),
    (".mutt", "of mail"),
    (".config/mutt", "of mail"),
    (".config/neomutt", "of mail"),
    (".config/aerc", "of mail"),
    (".offlineimaprc", "of mail"),
    (".config/offlineimap", "of mail"),
    (".config/himalaya", "of mail"),
    (".purple", "a messenger's"),
    (".weechat", "a messenger's"),
    (".config/weechat", "a messenger's"),
    (".irssi", "a messenger's"),
    (".config/irssi", "a messenger's"),
    (".config/hexchat", "a messenger's"),
    (".config/Element", "a messenger's"),
    (".zhistory", "what was typed"),
    (".histfile", "what was typed"),
    (".local/share/atuin", "what was typed"),
    (".local/share/zsh", "what was typed"),
    (".local/state/zsh", "what was typed"),
    (".local/state/bash", "what was typed"),
    (".config/nushell/history.txt", "what was typed"),
    (".config/nushell/history.sqlite3", "what was typed"),
    (".local/share/nushell", "what was typed"),
    (".local/state/python_history", "what was typed"),
    (".local/state/node_repl_history", "what was typed"),
    (".local/state/psql_history", "what was typed"),
    (".local/state/less", "what was typed"),
    (".local/state/lesshst", "what was typed"),
    (".lesshst", "what was typed"),
    (".viminfo", "what was typed"),
    (".local/state/nvim/shada", "what was typed"),
    (".local/share/nvim/shada", "what was typed"),
];

/// What is the user's and not in the home.
pub(crate) const OUTSIDE: [(&str, &str); 2] =
    [("/var/mail", "the mail"), ("/var/spool/mail", "the mail")];

/// The same of the agents that there are presets for, and of displays. A run whose policy grants them, as an
/// agent's own preset does and the feature `x11`, is shown them while it is learnt from.
pub(crate) const AGENTS: [(&str, &str); 20] = [
    (".Xauthority", "the display's"),
    (".ICEauthority", "the display's"),
    (".claude/.credentials.json", "Claude Code's"),
    (".claude.json", "Claude Code's"),
    (".codex/auth.json", "Codex's"),
    (".codex/.credentials.json", "Codex's"),
    (".gemini/oauth_creds.json", "Gemini's"),
    (".gemini/mcp-oauth-tokens.json", "Gemini's"),
    (".gemini/.env", "Gemini's"),
    (".qwen/oauth_creds.json", "Qwen Code's"),
    (".qwen/.env", "Qwen Code's"),
    (".copilot/config.json", "Copilot's"),
    (".config/cursor/auth.json", "Cursor's"),
    (".local/share/opencode/auth.json", "OpenCode's"),
    (".local/share/opencode/mcp-auth.json", "OpenCode's"),
    (".local/share/amp/secrets.json", "Amp's"),
    (".config/goose/secrets.yaml", "Goose's"),
    (".aider.conf.yml", "Aider's"),
    (".aider/oauth-keys.env", "Aider's"),
    (".pi/agent/auth.json", "pi's"),
];

/// What is called like a credential: for programs that no table names. Not what is public or text of a program.
pub(crate) fn by_name(path: &Path) -> Option<&'static str> {
    const PUBLIC: [&str; 24] = [
        "pub", "crt", "c", "css", "go", "h", "hpp", "html", "java", "js", "lua", "md", "mjs",
        "cjs", "php", "pl", "pm", "py", "pyc", "rb", "rs", "so", "svg", "ts",
    ];
    const KEYS: [&str; 10] =
        ["pem", "key", "kdbx", "kdb", "p12", "pfx", "jks", "keystore", "ppk", "tfvars"];
    const FILES: [&str; 10] = [
        "auth.json",
        "netrc",
        "_netrc",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "wallet.dat",
        "terraform.tfstate",
        "terraform.tfstate.backup",
    ];
    // What it is to look like, for who has none yet.
    const EXAMPLES: [&str; 6] = ["example", "sample", "template", "dist", "defaults", "schema"];
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    // Programs' own, and certificates that each program comes with.
    let installed = ["site-packages", "dist-packages", "node_modules"];
    if PUBLIC.contains(&ending)
        || ["ca-", "cacert", "roots"].iter().any(|public| name.starts_with(public))
        || path.iter().any(|part| installed.iter().any(|installed| part == *installed))
    {
        return None;
    }
    if name.ends_with("_history") || name.ends_with(".history") {
        return Some("what was typed, by its name");
    }
    let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
    let words = |text| str::split(text, |c: char| !c.is_ascii_alphanumeric());
    // `special_tokens_map.json` is a language model's.
    let last = [words(stem).next_back(), words(&name).next_back()];
    let known = KEYS.contains(&ending)
        || FILES.contains(&name.as_str())
        || name == ".env"
        || name.starts_with(".env.") && !EXAMPLES.contains(&ending)
        || ["credential", "passw", "apikey", "api_key"].iter().any(|part| name.contains(part))
        || words(&name).any(|word| matches!(word, "secret" | "secrets" | "oauth"))
        || last.iter().flatten().any(|word| matches!(*word, "token" | "tokens"));
    known.then_some("by its name")
}

#[cfg(test)]
mod tests {
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
        ] {
            assert!(by_name(&Path::new("/home/u/x").join(name)).is_none(), "{name}");
        }
    }
}
