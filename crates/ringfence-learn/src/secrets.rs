//! What is secret in a home: by a list, since nothing about a file says it.

use ringfence_policy::Moved;
use std::iter::once;
use std::path::{Path, PathBuf};

/// Below the home: credentials, where programs keep what speaks for their user, and what was typed.
const SECRETS: [(&str, &str); 115] = [
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
];

/// The same of the agents that there are presets for. A run whose policy grants them, as an agent's own preset
/// does, is shown them while it is learnt from.
const AGENTS: [(&str, &str); 18] = [
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

/// Variables by which agents have their directories elsewhere, as in the presets.
const ELSEWHERE: [(&str, &str); 2] = [("CLAUDE_CONFIG_DIR", ".claude"), ("CODEX_HOME", ".codex")];

/// Where those directories are, and what they are usually called.
fn elsewhere() -> impl Iterator<Item = (PathBuf, &'static str)> {
    ELSEWHERE.into_iter().filter_map(|(variable, usual)| {
        let base = std::env::var_os(variable).map(PathBuf::from)?;
        (base.is_absolute() && base.parent().is_some()).then_some((base, usual))
    })
}

/// What a run that is watched is not shown, wherever it may be, but for an agent's files that its policy grants.
pub fn hidden(home: &Path, moved: &Moved, granted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let at = |below: &str| once(home.join(below)).chain(moved.path(below)).collect::<Vec<_>>();
    let mut all: Vec<PathBuf> = SECRETS.iter().flat_map(|(below, _)| at(below)).collect();
    let mut agents: Vec<PathBuf> = AGENTS.iter().flat_map(|(below, _)| at(below)).collect();
    for (base, usual) in elsewhere() {
        let below =
            |(path, _): &(&str, _)| Path::new(path).strip_prefix(usual).map(|rest| base.join(rest));
        agents.extend(AGENTS.iter().filter_map(|agent| below(agent).ok()));
    }
    all.extend(agents.into_iter().filter(|path| !granted(path)));
    all
}

/// Whether something secret is usually below a directory of the home.
pub(crate) fn is_above_one(directory: &Path) -> bool {
    let below = |(secret, _): &(&str, _)| {
        let secret = Path::new(secret);
        secret != directory && secret.starts_with(directory)
    };
    SECRETS.iter().any(below) || AGENTS.iter().any(below)
}

/// What is secret below a directory of the host's, if something is there now.
pub(crate) fn held(directory: &Path, home: &Path, moved: &Moved) -> Option<&'static str> {
    let is_in = |path: PathBuf| {
        path != directory && path.starts_with(directory) && path.symlink_metadata().is_ok()
    };
    let mut all = SECRETS.iter().chain(&AGENTS);
    let found = all.find(|(below, _)| once(home.join(below)).chain(moved.path(below)).any(is_in));
    found.map(|(_, why)| *why)
}

/// What is secret about a path.
pub fn secret(path: &Path, home: &Path, moved: &Moved) -> Option<&'static str> {
    // All of them: a base directory can be moved to where the home has another secret.
    let mut names: Vec<PathBuf> = moved.usual(path).into_iter().collect();
    names.extend(path.strip_prefix(home).map(Path::to_owned));
    names.extend(elsewhere().filter_map(|(base, usual)| {
        path.strip_prefix(base).map(|rest| Path::new(usual).join(rest)).ok()
    }));
    // What ssh needs to know a host is none.
    let known = [".ssh/known_hosts", ".ssh/known_hosts2"];
    let why = |name: &PathBuf| {
        let all = SECRETS.iter().chain(&AGENTS);
        let mut all = all.filter(|_| !known.iter().any(|known| name == Path::new(known)));
        all.find(|(secret, _)| name.starts_with(secret)).map(|(_, why)| *why)
    };
    names.iter().find_map(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_their_place() {
        let home = Path::new("/home/u");
        let none = Moved::default();
        assert!(secret(Path::new("/home/u/.ssh/id_ed25519"), home, &none).is_some());
        assert!(secret(Path::new("/home/u/.ssh/known_hosts"), home, &none).is_none());
        assert!(secret(Path::new("/home/u/.aws"), home, &none).is_some());
        assert!(secret(Path::new("/home/u/.awsome"), home, &none).is_none());
        assert!(secret(Path::new("/srv/.ssh/id"), home, &none).is_none());
    }

    #[test]
    fn what_is_secret_is_so_where_its_base_directory_was_moved_to() {
        let home = Path::new("/home/u");
        let to = |base: &'static str| {
            Moved::of(home, &move |name| (name == "XDG_CONFIG_HOME").then(|| base.into()))
        };
        let elsewhere = to("/data/settings");
        let is = |path: &str, moved: &Moved| secret(Path::new(path), home, moved).is_some();
        assert!(is("/data/settings/gh/hosts.yml", &elsewhere));
        assert!(is("/home/u/.config/gh/hosts.yml", &elsewhere), "another program left it there");
        assert!(!is("/data/settings/x", &elsewhere));
        assert!(is("/home/u/.ssh/id", &to("/home/u")));
        assert!(is("/home/u/gh/hosts.yml", &to("/home/u")));
    }

    /// Whoever adds an agent names what it logs in with.
    #[test]
    fn the_login_of_each_agent_is_known() {
        let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        let mut agents = 0;
        for preset in std::fs::read_dir(presets).expect("the presets") {
            let text = std::fs::read_to_string(preset.expect("a preset").path()).expect("a preset");
            if !text.contains("_API_KEY\"") {
                continue;
            }
            agents += 1;
            let of_it = |(path, _): &&(&str, &str)| {
                let directory = Path::new(path).parent().unwrap_or(Path::new(""));
                let named = format!("~/{}", directory.display());
                named.len() > 2
                    && [&format!("\"{named}"), &format!(":-{named}}}")]
                        .iter()
                        .any(|name| text.contains(*name))
            };
            assert!(AGENTS.iter().any(|agent| of_it(&agent)), "{text}");
        }
        assert!(agents >= 11, "{agents}");
    }

    #[test]
    fn an_agent_that_is_granted_its_login_has_it() {
        let home = Path::new("/home/u");
        let login = home.join(".claude/.credentials.json");
        let all = |granted: &dyn Fn(&Path) -> bool| hidden(home, &Moved::default(), granted);
        assert!(all(&|_| false).contains(&login));
        let learnt = all(&|_| true);
        assert!(!learnt.contains(&login) && learnt.contains(&home.join(".ssh")));
    }
}
