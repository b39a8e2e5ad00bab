//! Calls of language models and credentials that are put in are rows of the record, and no secret
//! is.

use super::{SECRET, Server};
use crate::network_told::{proxy, rows};
use ringfence_tests::{Running, Tier, everybody};

#[test]
fn calls_of_models_and_credentials_are_on_record_without_the_secret() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let proxy = format!("http://127.0.0.1:{}", proxy(server.port));
        let authority = place.file("authority.pem", &server.authority);
        let mut command = place.ringfence_run();
        command.env("SSL_CERT_FILE", authority).env("TOKEN", SECRET).env("HTTPS_PROXY", proxy);
        command.args(["--inject", "api.anthropic.com x-api-key={env:TOKEN}"]);
        command.args(["--http", "POST api.anthropic.com/v1/*", "--", "bash", "-c"]);
        place.file("home/project/prompt", "{\"prompt\":\"private words\"}");
        let call = "curl -sS https://api.anthropic.com/v1/messages -d @prompt";
        command.arg(format!("set -e; {call}; test -z \"$TOKEN\"; {call} --http1.1 >/dev/null"));
        let done = Running::start(command).finish();
        // The server was shown the credential.
        done.ends(0).prints(&format!("\"id\":\"{}\"", SECRET.len()));
        let models = rows(place, "model_call");
        assert_eq!(models.len(), 2, "{models:?}");
        for row in &models {
            let told = |name: &str| row[name].to_string();
            assert_eq!(
                ["provider", "model", "input", "output", "tool_calls", "status"].map(told),
                ["\"anthropic\"", "\"claude-test-1\"", "12", "34", "1", "200"],
                "{row}"
            );
            assert!(row["pid"].as_i64() > Some(1), "{row}");
        }
        let substitutions = rows(place, "substitution");
        assert_eq!(substitutions.len(), 2);
        for row in &substitutions {
            assert_eq!(
                (&row["header"], &row["host"]),
                (&"x-api-key".into(), &"api.anthropic.com".into())
            );
            assert_eq!(row["source"], "env:TOKEN");
        }
        // Neither the credential nor the words are anywhere in the record.
        let sessions = place.at("home/.local/state/ringfence/sessions");
        let mut looked_at = 0;
        let mut pending = vec![sessions];
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => pending.push(entry.path()),
                    kind if kind.is_file() => {
                        let bytes = std::fs::read(entry.path()).unwrap();
                        let holds =
                            |text: &str| bytes.windows(text.len()).any(|at| at == text.as_bytes());
                        assert!(!holds(SECRET) && !holds("private words"), "{:?}", entry.path());
                        looked_at += 1;
                    }
                    _ => {}
                }
            }
        }
        assert!(looked_at >= 2, "the journal and the database");
    });
}
