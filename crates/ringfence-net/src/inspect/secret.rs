//! Credentials that the gateway adds to requests: read once, in the launcher, before anything
//! runs; wiped from the copy of memory that the sandbox's first process gets; never printed.

use super::request::plain_name;
use crate::decision::Injection;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use ringfence_policy::http::{SecretSource, secret_parts};
use ringfence_policy::{Host, HostRule, InjectRule, Policy};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The longest secret: what fits into a header that servers take.
const MOST: u64 = 16 * 1024;
/// Shorter ones could be in any header by chance, and are not looked for in answers.
const LEAST_TO_FIND: usize = 6;
/// The port of HTTP within TLS.
const HTTPS: u16 = 443;
const REDACTED: &[u8] = b"[redacted by ringfence]";

/// One header to add.
struct Injected {
    host: HostRule,
    header: HeaderName,
    /// Its name as servers may read it.
    plain: String,
    /// The whole value.
    value: Vec<u8>,
    /// Where in it the secret is.
    secret: std::ops::Range<usize>,
    /// What is told of where it came from.
    source: String,
}

/// All headers to add.
#[derive(Default)]
pub(super) struct Secrets(RwLock<Vec<Injected>>);

impl Secrets {
    /// Reads what the policy's rules name.
    ///
    /// # Errors
    /// A sentence that names the rule, and nothing of a secret.
    pub fn read(policy: &Policy) -> Result<Secrets, String> {
        let mut list = Vec::new();
        // A descriptor can be read once, and a command need not run twice.
        let mut known: Vec<(&str, Vec<u8>)> = Vec::new();
        for rule in &policy.network.inject {
            let wrong = |why: String| format!("{}: {why}", rule.source);
            let (before, source, after) = secret_parts(&rule.secret).map_err(&wrong)?;
            let named = &rule.secret[before.len()..rule.secret.len() - after.len()];
            if !known.iter().any(|(text, _)| *text == named) {
                known.push((named, read(source, rule).map_err(&wrong)?));
            }
            let secret = known.iter().find(|(text, _)| *text == named).map(|(_, secret)| secret);
            let secret = secret.map(Vec::as_slice).unwrap_or_default();
            let value = [before.as_bytes(), secret, after.as_bytes()].concat();
            let header = HeaderName::from_bytes(rule.header.as_bytes())
                .map_err(|_| wrong("this is no name of a header".to_owned()))?;
            // Checked without a copy that would stay: a header's value holds no controls.
            if secret.is_empty() {
                return Err(wrong("the secret is empty".to_owned()));
            }
            if value.iter().any(|&byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
                return Err(wrong("the secret holds a control character".to_owned()));
            }
            let secret = before.len()..before.len() + secret.len();
            let plain = plain_name(&header);
            // What is written in a command may be as secret as what it prints.
            let source = match source {
                SecretSource::Command(_) => "cmd",
                _ => named.trim_start_matches('{').trim_end_matches('}'),
            };
            let source = source.to_owned();
            list.push(Injected { host: rule.host.clone(), header, plain, value, secret, source });
        }
        known.iter_mut().for_each(|(_, secret)| wipe(secret));
        Ok(Secrets(RwLock::new(list)))
    }

    fn list(&self) -> RwLockReadGuard<'_, Vec<Injected>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Overwrites them all. For the sandbox's first process, which begins as a copy of the
    /// launcher.
    pub fn forget(&self) {
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        list.iter_mut().for_each(|injected| wipe(&mut injected.value));
        list.clear();
    }

    /// Takes out what a program sent by the names of headers that are put in, in any spelling that a server
    /// may take for them: its own word would pass beside the credential, or for it.
    pub fn clear(&self, host: &Host, port: u16, headers: &mut HeaderMap) {
        let list = self.list();
        let concerns = |name: &HeaderName| {
            let of = |injected: &&Injected| injected.host.matches(host, port);
            let mut list = list.iter().filter(of).peekable();
            list.peek().is_some() && {
                let plain = plain_name(name);
                list.any(|injected| injected.plain == plain)
            }
        };
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| concerns(name)).cloned().collect();
        names.iter().for_each(|name| {
            headers.remove(name);
        });
    }

    /// Puts the headers that belong to a request in, in place of what the program sent by these
    /// names. Returns what was put in.
    ///
    /// Without TLS only where a rule names the port: what anybody on the way can read is no place
    /// for a credential, unless the user says so. Who names 443 means TLS.
    pub fn inject(
        &self,
        host: &Host,
        port: u16,
        secure: bool,
        headers: &mut HeaderMap,
    ) -> Vec<Injection> {
        let mut put = Vec::new();
        self.clear(host, port, headers);
        for injected in self.list().iter().filter(|injected| injected.host.matches(host, port)) {
            let any = injected.host.ports == ringfence_policy::port::Ports::default();
            if !secure && (any || port == HTTPS) {
                continue;
            }
            if let Ok(mut value) = HeaderValue::from_bytes(&injected.value) {
                value.set_sensitive(true);
                headers.insert(injected.header.clone(), value);
                let (header, source) = (injected.header.to_string(), injected.source.clone());
                put.push(Injection { header, source });
            }
        }
        put
    }

    /// Takes the secrets out of an answer's headers: servers echo what they were sent.
    pub fn redact(&self, host: &Host, port: u16, headers: &mut HeaderMap) {
        for injected in self.list().iter().filter(|injected| injected.host.matches(host, port)) {
            let Some(secret) = injected.value.get(injected.secret.clone()) else { continue };
            if secret.len() < LEAST_TO_FIND {
                continue;
            }
            let names = headers.keys().filter(|name| without(name.as_ref(), secret).is_some());
            let names: Vec<HeaderName> = names.cloned().collect();
            names.iter().for_each(|name| {
                headers.remove(name);
            });
            for value in headers.values_mut() {
                if let Some(clean) = without(value.as_bytes(), secret) {
                    *value = HeaderValue::from_bytes(&clean)
                        .unwrap_or_else(|_| HeaderValue::from_static("[redacted]"));
                }
            }
        }
    }
}

/// Overwrites, in a way that is not left out for nobody reading it again.
fn wipe(bytes: &mut Vec<u8>) {
    bytes.fill(0);
    std::hint::black_box(&mut *bytes);
    bytes.clear();
}

/// How much of the beginning of a text is the secret: each byte as it is, in either case, or as some URL writes it. Of
/// a secret that holds `%` it depends on `percent` how one is read that begins an escape.
fn spelled(text: &[u8], secret: &[u8], percent: bool) -> Option<usize> {
    let digit = |at: &u8| char::from(*at).to_digit(16);
    let mut at = 0;
    for byte in secret {
        let rest = &text[at..];
        let escape = match rest {
            [b'%', high, low, ..] => digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let same = |one: u32| u8::try_from(one).is_ok_and(|one| one.eq_ignore_ascii_case(byte));
        at += match rest.first()? {
            _ if escape.is_some_and(same) && (*byte != b'%' || !percent) => 3,
            one if one.eq_ignore_ascii_case(byte) => 1,
            b'+' if *byte == b' ' => 1,
            _ => return None,
        };
    }
    Some(at)
}

/// A value with each occurrence of a secret replaced; nothing when there is none.
fn without(value: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = value;
    let mut found = false;
    while let Some((first, others)) = rest.split_first() {
        let length = spelled(rest, secret, true).or_else(|| spelled(rest, secret, false));
        if let Some(length) = length {
            out.extend_from_slice(REDACTED);
            rest = &rest[length..];
            found = true;
        } else {
            out.push(*first);
            rest = others;
        }
    }
    found.then_some(out)
}

fn read(source: SecretSource<'_>, rule: &InjectRule) -> Result<Vec<u8>, String> {
    let mut secret = match source {
        SecretSource::Variable(name) => std::env::var_os(name)
            .map(|value: OsString| value.as_bytes().to_vec())
            .ok_or_else(|| format!("the variable {name} is not set"))?,
        SecretSource::File(path) => {
            let shown = rule.file.as_deref().unwrap_or(path.as_ref());
            let file = std::fs::File::open(shown);
            let file = file.map_err(|error| format!("{}: {error}", shown.display()))?;
            all(file).map_err(|error| format!("{}: {error}", shown.display()))?
        }
        SecretSource::Descriptor(number) => {
            let open = ringfence_sys::fd::adopt(i32::from(number));
            let open = open.ok_or_else(|| format!("descriptor {number} is not open"))?;
            all(std::fs::File::from(open))
                .map_err(|error| format!("descriptor {number}: {error}"))?
        }
        SecretSource::Command(command) => printed(command)?,
    };
    // Files and commands end with a new line that is no part of the secret.
    while let Some(b'\n' | b'\r') = secret.last() {
        secret.pop();
    }
    Ok(secret)
}

fn all(from: impl Read) -> Result<Vec<u8>, String> {
    // Without growing, so that no part is left behind in freed memory.
    let mut secret = Vec::with_capacity(MOST as usize + 1);
    from.take(MOST + 1).read_to_end(&mut secret).map_err(|error| crate::flow::io_text(&error))?;
    if secret.len() as u64 > MOST {
        wipe(&mut secret);
        return Err(format!("it is longer than {MOST} bytes"));
    }
    Ok(secret)
}

/// What a command of the user's prints: run outside, as the user, before anything is inside.
fn printed(command: &str) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot run `{command}`: {error}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let secret = child.stdout.take().map(all).unwrap_or_else(|| Ok(Vec::new()));
    let status = child.wait().map_err(failed)?;
    match status.success() {
        true => secret.map_err(|error| format!("`{command}`: {error}")),
        false => Err(format!("`{command}` ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::Source;

    fn secrets(rules: &[(&str, &str, &str)]) -> Result<Secrets, String> {
        let mut policy = Policy::default();
        for (host, header, secret) in rules {
            policy.network.inject.push(InjectRule {
                host: HostRule::parse(host).expect("a host"),
                header: (*header).to_owned(),
                secret: (*secret).to_owned(),
                file: None,
                source: Source {
                    origin: "option --inject".to_owned(),
                    key: String::new(),
                    text: format!("{host} {header}={secret}"),
                },
            });
        }
        Secrets::read(&policy)
    }

    fn name(text: &str) -> Host {
        Host::parse(text).expect("a host")
    }

    fn names(put: &[Injection]) -> Vec<&str> {
        put.iter().map(|one| one.header.as_str()).collect()
    }

    #[test]
    fn what_the_program_sent_is_replaced_for_the_rules_host_only() {
        let secrets = secrets(&[("a.org", "authorization", "Bearer {cmd:printf 's3cret\\n'}!")])
            .expect("read");
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("theirs"));
        headers.append("authorization", HeaderValue::from_static("again"));
        let before = headers.clone();
        assert!(secrets.inject(&name("b.org"), 443, true, &mut headers).is_empty());
        assert!(secrets.inject(&name("a.org"), 444, true, &mut headers).is_empty());
        assert_eq!(headers, before);
        let put = secrets.inject(&name("a.org"), 443, true, &mut headers);
        assert_eq!(names(&put), ["authorization"]);
        // Nothing of what the command says.
        assert_eq!(put[0].source, "cmd");
        let values: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["Bearer s3cret!"]);
        assert!(values[0].is_sensitive());
    }

    #[test]
    fn what_a_server_may_take_for_the_header_is_gone_too() {
        let secrets = secrets(&[("a.org", "x-api-key", "cmd:echo secret")]).expect("read");
        let mut headers = HeaderMap::new();
        for name in ["x_api_key", "x-api_key", "x.api.key", "x-api-keys", "xapikey"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("theirs"));
        }
        let before = headers.clone();
        assert!(secrets.inject(&name("b.org"), 443, true, &mut headers).is_empty());
        assert_eq!(headers, before, "another host's stay");
        secrets.inject(&name("a.org"), 443, true, &mut headers);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["x-api-key", "x-api-keys", "xapikey"]);
        assert_eq!(headers["x-api-key"], "secret");
    }

    #[test]
    fn nothing_is_sent_in_the_clear_unless_its_port_is_named() {
        let secrets = secrets(&[
            ("a.org", "x-key", "cmd:echo secret-1"),
            ("b.org:80", "x-key", "cmd:echo secret-2"),
            ("c.org:443", "x-key", "cmd:echo secret-3"),
        ])
        .expect("read");
        let mut headers = HeaderMap::new();
        headers.append("x-key", HeaderValue::from_static("theirs"));
        assert!(secrets.inject(&name("c.org"), 443, false, &mut headers).is_empty());
        assert_eq!(names(&secrets.inject(&name("c.org"), 443, true, &mut headers)), ["x-key"]);
        headers.remove("x-key");
        headers.append("x-key", HeaderValue::from_static("theirs"));
        assert!(secrets.inject(&name("a.org"), 80, false, &mut headers).is_empty());
        assert!(headers.is_empty(), "theirs goes all the same");
        assert_eq!(names(&secrets.inject(&name("b.org"), 80, false, &mut headers)), ["x-key"]);
    }

    #[test]
    fn an_echo_is_redacted_however_it_is_spelled() {
        let secrets = secrets(&[("a.org", "x-key", "cmd:echo 'ab+/c 1%%25=='")]).expect("read");
        let spellings = [
            "ab+/c 1%%25==",
            "AB+/C 1%%25==",
            "ab%2B%2Fc%201%25%2525%3D%3D",
            "ab%2b%2fc+1%25%2525%3d%3d",
            "ab%2B/c%201%25%2525==",
            "%61b+/c 1%%25=%3D",
        ];
        let mark = "[redacted by ringfence]";
        for spelling in spellings {
            let mut headers = HeaderMap::new();
            let twice = format!("1 {spelling}%3D {spelling}");
            headers.append("location", HeaderValue::from_str(&twice).expect(spelling));
            headers.append("x-other", HeaderValue::from_static("ab+/c 1%%25="));
            secrets.redact(&name("a.org"), 443, &mut headers);
            assert_eq!(headers["location"], format!("1 {mark}%3D {mark}"), "{spelling}");
            assert_eq!(headers["x-other"], "ab+/c 1%%25=");
        }
    }

    #[test]
    fn a_header_that_is_called_like_the_secret_is_gone() {
        let secrets = secrets(&[("a.org", "x-key", "cmd:echo Se-Cret")]).expect("read");
        let mut headers = HeaderMap::new();
        for header in ["x-se-cret-1", "x-se-cre"] {
            headers.append(HeaderName::from_static(header), HeaderValue::from_static("1"));
        }
        secrets.redact(&name("a.org"), 443, &mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-se-cre"]);
    }

    #[test]
    fn a_source_that_gives_nothing_usable_is_an_error_without_the_secret() {
        for (source, word) in [
            ("env:RINGFENCE_TEST_UNSET", "is not set"),
            ("cmd:true", "empty"),
            ("cmd:echo hunter2; exit 3", "exit status: 3"),
            ("cmd:printf 'hunter2\\nmore'", "control character"),
            ("fd:987", "is not open"),
            ("cmd:head -c 20000 /dev/zero", "longer"),
        ] {
            let error = secrets(&[("a.org", "x", source)]).err().expect(source);
            assert!(error.contains(word) && error.starts_with("option --inject"), "{error}");
        }
    }

    #[test]
    fn what_is_forgotten_is_gone() {
        let secrets = secrets(&[("a.org", "x-key", "cmd:echo secret")]).expect("read");
        let mut headers = HeaderMap::new();
        assert_eq!(names(&secrets.inject(&name("a.org"), 443, true, &mut headers)), ["x-key"]);
        secrets.forget();
        headers.clear();
        assert!(secrets.inject(&name("a.org"), 443, true, &mut headers).is_empty());
    }
}
