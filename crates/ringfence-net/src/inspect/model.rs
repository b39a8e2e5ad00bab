//! Calls of language models, read off the answers of their well-known interfaces as they pass:
//! which model, how many tokens, how many calls of tools. Nothing of the text is kept.

use crate::decision::ModelCall;
use ringfence_policy::Host;

/// Hosts, the start of paths, and whose they are.
const PROVIDERS: [(&str, &str, &str); 11] = [
    ("api.anthropic.com", "/v1/messages", "anthropic"),
    ("api.openai.com", "/v1/chat/completions", "openai"),
    ("api.openai.com", "/v1/responses", "openai"),
    ("api.openai.com", "/v1/embeddings", "openai"),
    ("generativelanguage.googleapis.com", "/v1", "google"),
    ("openrouter.ai", "/api/v1/", "openrouter"),
    ("api.mistral.ai", "/v1/", "mistral"),
    ("api.groq.com", "/openai/v1/", "groq"),
    ("api.deepseek.com", "/", "deepseek"),
    ("api.x.ai", "/v1/", "xai"),
    ("api.cohere.com", "/v", "cohere"),
];
/// The longest key or value that is looked at.
const MOST: usize = 80;

/// Looks through an answer's JSON, whole or in events, however it is cut.
pub(super) struct Scanner {
    call: ModelCall,
    /// In chat answers each call of a tool has this type; elsewhere the tools themselves have.
    chat: bool,
    /// In a string; after a backslash there.
    string: bool,
    escaped: bool,
    /// The string or number being read, while it is short enough.
    token: Vec<u8>,
    long: bool,
    /// The last string, which may be a key.
    last: Option<String>,
    /// The key whose value comes.
    key: Option<String>,
}

impl Scanner {
    /// For a request to a known interface.
    pub fn of(host: &Host, method: &str, path: &str) -> Option<Scanner> {
        let Host::Name(name) = host else { return None };
        let known =
            |(host, start, _): &&(&str, &str, &str)| name == host && path.starts_with(start);
        let (_, _, provider) = PROVIDERS.iter().find(known)?;
        (method == "POST").then(|| Scanner {
            call: ModelCall { provider: (*provider).to_owned(), ..ModelCall::default() },
            chat: path.contains("/chat/"),
            string: false,
            escaped: false,
            token: Vec::new(),
            long: false,
            last: None,
            key: None,
        })
    }

    /// What was found; nothing when the answer was none of a model's.
    pub fn found(self) -> Option<ModelCall> {
        (!self.call.model.is_empty() || self.call.input > 0).then_some(self.call)
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.string {
                match byte {
                    _ if self.escaped => {
                        self.escaped = false;
                        self.push(byte);
                    }
                    b'\\' => self.escaped = true,
                    b'"' => self.string_ends(),
                    _ => self.push(byte),
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.string = true;
                    self.clear();
                }
                b':' => {
                    self.key = self.last.take();
                    self.clear();
                }
                b'0'..=b'9' => self.push(byte),
                b' ' | b'\t' | b'\r' | b'\n' if self.token.is_empty() => {}
                _ => {
                    self.number_ends();
                    match self.key.take().as_deref() {
                        Some("functionCall") if byte == b'{' => self.call.tool_calls += 1,
                        _ => {}
                    }
                    self.last = None;
                }
            }
        }
    }

    fn push(&mut self, byte: u8) {
        if self.token.len() < MOST { self.token.push(byte) } else { self.long = true }
    }

    fn clear(&mut self) {
        self.token.clear();
        self.long = false;
    }

    fn string_ends(&mut self) {
        self.string = false;
        let text = match self.long {
            true => String::new(),
            false => String::from_utf8_lossy(&self.token).into_owned(),
        };
        self.clear();
        let Some(key) = self.key.take() else {
            self.last = Some(text);
            return;
        };
        match (key.as_str(), text.as_str()) {
            ("model" | "modelVersion", _) if self.call.model.is_empty() => self.call.model = text,
            ("type", "tool_use" | "server_tool_use" | "function_call") => self.call.tool_calls += 1,
            ("type", "function") if self.chat => self.call.tool_calls += 1,
            _ => {}
        }
    }

    fn number_ends(&mut self) {
        let number = std::str::from_utf8(&self.token).ok().and_then(|text| text.parse().ok());
        self.clear();
        let (Some(key), Some(number)) = (&self.key, number) else { return };
        match key.as_str() {
            // Events repeat them, each time as the sum so far.
            "input_tokens" | "prompt_tokens" | "promptTokenCount" => {
                self.call.input = self.call.input.max(number);
            }
            "output_tokens" | "completion_tokens" | "candidatesTokenCount" => {
                self.call.output = self.call.output.max(number);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(host: &str, path: &str, answer: &str) -> Option<ModelCall> {
        let whole = [answer.len(), 1, 7].map(|size| {
            let mut scanner = Scanner::of(&Host::Name(host.to_owned()), "POST", path)?;
            answer.as_bytes().chunks(size.max(1)).for_each(|part| scanner.feed(part));
            scanner.found()
        });
        assert!(whole[0] == whole[1] && whole[1] == whole[2], "however it is cut: {whole:?}");
        whole.into_iter().next().flatten()
    }

    fn call(provider: &str, model: &str, input: u64, output: u64, tool_calls: u32) -> ModelCall {
        let (provider, model) = (provider.to_owned(), model.to_owned());
        ModelCall { provider, model, input, output, tool_calls }
    }

    #[test]
    fn an_answer_in_events_is_summed_up() {
        let events = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","model":"claude-x","usage":{"input_tokens":25,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"read"}}

data: {"type":"content_block_delta","delta":{"text":"say \"model\": \"other\", \"output_tokens\": 999"}}

event: message_delta
data: {"type":"message_delta","usage":{"output_tokens": 150 }}
"#;
        let found = scan("api.anthropic.com", "/v1/messages", events);
        assert_eq!(found, Some(call("anthropic", "claude-x", 25, 150, 1)));
    }

    #[test]
    fn whole_answers_of_others_are_read_too() {
        let chat = r#"{"id": "c", "model": "gpt-x", "choices": [{"message": {"content": null,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}}]}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}}"#;
        let found = scan("api.openai.com", "/v1/chat/completions", chat);
        assert_eq!(found, Some(call("openai", "gpt-x", 9, 12, 1)));
        let google = r#"{"candidates":[{"content":{"parts":[{"functionCall": {"name":"f"}}]}}],
            "usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":10},"modelVersion":"g-1"}"#;
        let path = "/v1beta/models/g:generateContent";
        let found = scan("generativelanguage.googleapis.com", path, google);
        assert_eq!(found, Some(call("google", "g-1", 4, 10, 1)));
    }

    #[test]
    fn other_hosts_paths_and_answers_are_nobodys_call() {
        assert_eq!(scan("example.org", "/v1/messages", "{\"model\":\"x\"}"), None);
        assert_eq!(scan("api.anthropic.com", "/v1/files", "{\"model\":\"x\"}"), None);
        assert_eq!(scan("api.anthropic.com", "/v1/messages", "{\"error\":\"no\"}"), None);
        assert_eq!(scan("api.anthropic.com", "/v1/messages", "\u{1f980}\"\\"), None);
    }
}
