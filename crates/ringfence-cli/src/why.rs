//! `ringfence why`: the decision, its rule, and how to change it.

mod files;
mod sockets;

use crate::error::Fault;
use crate::generate::print;
use crate::options::{POLICY, Spec, flag, parse};
use crate::{advice, help, request};
use ringfence_net::upstream::Upstream;
use ringfence_net::{resolver as names, rules};
use ringfence_policy::decide::{Request, SCHEMA};
use ringfence_policy::{
    Decision, Host, HostFiles, NetworkMode, Policy, Resolver, Subject, TierChoice, decide, shown,
    too_much, unseen_above,
};
use ringfence_sandbox::dbus;
use ringfence_sandbox::facts::{Facts, HostPaths};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::plan::EnvironmentStep;
use ringfence_sandbox::{launch, planner, text};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const VERBS: [&str; 7] = ["read", "write", "exec", "connect", "http", "socket", "env"];

/// The options: those of `run`, and who is told.
pub const WHY: [Spec; POLICY.len() + 1] = {
    let inside = "Tell no more than what is inside can find out: for answers that it gets";
    let mut all = [flag("inside", None, inside); POLICY.len() + 1];
    let mut at = 0;
    while at < POLICY.len() {
        all[at] = POLICY[at];
        at += 1;
    }
    all
};

/// `ringfence why [OPTIONS] -- read|write|exec PATH | …`: exit 0 allowed, 1 denied.
///
/// # Errors
/// Bad input.
pub fn why(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&WHY, arguments, true)?;
    if let Some(done) = help::asked("why", &parsed) {
        return done;
    }
    // The words are the question's, not a command's.
    let asked = request::request(&parsed, None);
    let policy = request::policy(&asked)?;
    let inside = parsed.has("inside");
    let decision = match nowhere(&parsed.rest, &policy, inside) {
        Some(decision) => decision,
        None => {
            let question = question(&parsed.rest, &policy, inside)?;
            let decision = carried_out(&policy, &question);
            if inside { as_seen(decision, &policy) } else { decision }
        }
    };
    let text = if parsed.has("json") {
        let text = serde_json::to_string_pretty(&decision).map_err(Fault::of)?;
        shown::json(&text).into_owned()
    } else {
        shown::message(&words(&decision)).into_owned()
    };
    print(format!("{text}\n").as_bytes())?;
    Ok(u8::from(!decision.allowed))
}

/// Whether what is inside can find out by itself what is at a path: where it leads, and where each link on the way
/// stands, is what it may read.
fn seen(policy: &Policy, path: &Path) -> bool {
    let readable = |path: &Path| decide(policy, &Request::Read(Subject::lexical(path))).allowed;
    let real = Resolver::new(&HostFiles).real(path);
    real.is_ok_and(|real| readable(&real.path) && real.links.iter().all(|(link, _)| readable(link)))
}

/// Of a path that is out of sight, the answer is the policy's alone: whether something is there, and where a link
/// leads, is the host's business.
pub(crate) fn as_seen(decision: Decision, policy: &Policy) -> Decision {
    let (Request::Read(subject)
    | Request::Write(subject)
    | Request::Exec(subject)
    | Request::Socket(subject)) = &decision.request
    else {
        return decision;
    };
    if seen(policy, &subject.path) {
        return decision;
    }
    let shown = subject.path.display();
    let lexical = Subject::lexical(&subject.path);
    let asked = match &decision.request {
        Request::Write(_) => Request::Write(lexical),
        Request::Exec(_) => Request::Exec(lexical),
        Request::Socket(_) => Request::Socket(lexical),
        _ => Request::Read(lexical),
    };
    let told = decide(policy, &asked);
    if !told.allowed && decision.allowed {
        // A link leads to what is granted.
        let (rule, remedy, effect) = (None, None, None);
        let explanation = format!("{shown} is allowed");
        return Decision { allowed: true, explanation, rule, remedy, effect, ..told };
    }
    if told.allowed == decision.allowed {
        return told;
    }
    Decision {
        allowed: false,
        explanation: format!("{shown} leads to what no rule grants"),
        rule: None,
        remedy: Some(
            "grant what it leads to by its own path (readlink -f tells the user)".to_owned(),
        ),
        effect: None,
        ..told
    }
}

/// What becomes of a request in a run with this policy.
pub(crate) fn carried_out(policy: &Policy, question: &Request) -> Decision {
    sockets::as_written(as_carried_out(decide(policy, question), policy), policy)
}

/// Where the plan says more than the policy, that is the answer: what protected names lead to is
/// found by the planner, and a tier may not be able to carry out what is allowed.
fn as_carried_out(mut decision: Decision, policy: &Policy) -> Decision {
    if let Request::Env { name } = &decision.request {
        let name = name.clone();
        return as_given(decision, policy, &name);
    }
    if let Request::Read(subject) | Request::Exec(subject) = &decision.request
        && !decision.allowed
        && decision.rule.is_none()
        && decision.remedy.is_some()
        && let Some(environment) = advice::virtual_environment(&subject.path)
    {
        // The file alone would not find its interpreter, nor its modules.
        decision.remedy = Some(shown::option("--read", &environment, false));
        return decision;
    }
    if let Request::Socket(_) = &decision.request {
        return sockets::as_reached(decision, policy);
    }
    let (Request::Read(subject) | Request::Write(subject)) = &decision.request else {
        return as_led(rules::elsewhere(policy, decision, rules::own), policy);
    };
    let path = subject.real.as_deref().unwrap_or(&subject.path).to_path_buf();
    let write = matches!(decision.request, Request::Write(_));
    if write
        && !decision.allowed
        && decision.layer == "filesystem"
        && files::is_ones_own(policy, &subject.path)
    {
        let explanation = format!("{} is the process's own, as outside", subject.path.display());
        let (rule, remedy) = (None, None);
        return Decision { allowed: true, explanation, rule, remedy, ..decision };
    }
    if write
        && decision.layer == "private"
        && let Some(above) = unseen_above(policy, &path, &HostFiles)
    {
        let effect = decision.effect.take().unwrap_or_default();
        let absent = above.display();
        decision.effect = Some(format!("{effect}; {absent} is not there inside, until it is made"));
        let grant = |path: &Path| shown::option("--write", path, false);
        decision.remedy = Some(match too_much(&above, policy) {
            None => format!("to write the host's: {}", grant(&above)),
            Some(reason) => format!(
                "to write the host's, make it outside, and grant it alone: {} (not all of {absent}: {reason})",
                grant(&path)
            ),
        });
    }
    if write && !decision.allowed && decision.layer == "protect" {
        return files::as_kept(decision, policy, &path);
    }
    if decision.allowed
        && decision.layer == "filesystem"
        && let Some(explanation) = files::is_closed(&path, write)
    {
        return Decision { allowed: false, explanation, rule: None, ..decision };
    }
    decision = sockets::as_hidden(decision, policy, &path);
    if !write && decision.allowed && policy.network.mode == NetworkMode::Filtered {
        decision = files::as_shown(decision, policy, &path);
    }
    let may_differ = write || policy.tier != TierChoice::Namespace && path.is_dir();
    // What is not there yet may lie in a directory that is protected.
    if !decision.allowed || !may_differ || !write && !path.exists() {
        return decision;
    }
    match files::plan(policy) {
        Some(plan) if write => files::as_guarded(decision, policy, &plan, &path),
        Some(plan) => files::as_listed(decision, policy, plan, &path),
        None => decision,
    }
}

/// Where this host's own file says where a name leads, that is known without asking anybody.
fn as_led(decision: Decision, policy: &Policy) -> Decision {
    let Some((host, port)) = rules::asked(&decision) else { return decision };
    let Host::Name(name) = &host else { return decision };
    let upstream = Upstream::of_environment(&|name| std::env::var(name).ok());
    // What is allowed by its name is the proxy's to resolve; what is allowed by its address goes there too.
    if decision.allowed && upstream.resolves(&host, port) {
        return decision;
    }
    let addresses = names::Resolver::default().listed(name).unwrap_or_default();
    rules::listed(policy, decision, &addresses, rules::own)
}

/// What a variable names may not be there in a tier, and some are the sandbox's own.
fn as_given(decision: Decision, policy: &Policy, name: &str) -> Decision {
    let mut facts = Facts::probed();
    if !facts.environment.iter().any(|known| known == name) {
        facts.environment.push(name.to_owned());
    }
    dbus::look(policy, &mut facts, &Inputs::new());
    let Ok(plan) = planner::plan(policy, &facts, &HostPaths) else { return decision };
    let given = launch::has_variable(&plan, name);
    if given == decision.allowed {
        return decision;
    }
    let step = plan.environment.iter().rev().find_map(|step| match step {
        EnvironmentStep::Set { name: known, rule, .. } if given && known == name => Some(rule),
        EnvironmentStep::Hide { name: known, rule } if !given && known == name => Some(rule),
        _ => None,
    });
    let why = step.map(|rule| rule.text.as_str());
    let explanation = match (given, why) {
        (true, Some(why)) => format!("{name} is set for the sandbox: it {why}"),
        (true, None) => format!("{name} is the sandbox's own"),
        (false, Some(why)) => format!("{name} is not passed on: it {why}"),
        (false, None) => format!("{name} is not passed on: what it says is not true inside"),
    };
    let remedy = (!given).then(|| format!("--env {}=VALUE", shown::word(name)));
    let (rule, effect) = (step.cloned(), None);
    Decision { allowed: given, explanation, rule, remedy, effect, ..decision }
}

fn words(decision: &Decision) -> String {
    let verdict = if decision.allowed { "allowed" } else { "denied" };
    let mut lines = vec![format!("{verdict}: {}", decision.explanation)];
    lines.extend(decision.rule.as_ref().map(|rule| format!("rule:    {}", text::source(rule))));
    lines.extend(decision.effect.as_ref().map(|effect| format!("effect:  {effect}")));
    lines.extend(decision.remedy.as_ref().map(|remedy| format!("to change it: {remedy}")));
    // A name or a link's text with an end of line in it would make lines of its own.
    let lines: Vec<_> = lines.iter().map(|line| shown::line(line)).collect();
    lines.join("\n")
}

fn question(words: &[OsString], policy: &Policy, inside: bool) -> Result<Request, Fault> {
    let seen = |path: &Path| !inside || seen(policy, path);
    let subject = |path: &OsStr| subject(path, &policy.workdir, &seen);
    let usage = || {
        Fault::usage(
            "ask one thing: ringfence why -- read|write|exec PATH, connect HOST:PORT, \
             http METHOD URL, socket PATH, env NAME",
        )
    };
    let (verb, operands) = words.split_first().ok_or_else(usage)?;
    let verb = verb.to_str().ok_or_else(usage)?;
    match (verb, operands) {
        ("read" | "write" | "exec" | "socket", [path]) if path.is_empty() => Err(Fault::usage(
            format!("{verb}: the path is empty; write `.` for the directory of the run"),
        )),
        ("read", [path]) => Ok(Request::Read(subject(path))),
        ("write", [path]) => Ok(Request::Write(subject(path))),
        ("exec", [path]) => {
            let found = program(path, policy, inside);
            Ok(Request::Exec(found.unwrap_or_else(|| subject(path))))
        }
        ("socket", [path]) => Ok(Request::Socket(subject(path))),
        ("connect", [target]) => connect(target),
        ("env", [name]) => Ok(Request::Env { name: name.to_string_lossy().into_owned() }),
        ("http", [method, url]) => http(method, &url.to_string_lossy()),
        (verb, _) if !VERBS.contains(&verb) => {
            let nearest = ringfence_policy::suggest::nearest(verb, &VERBS);
            let nearest = nearest.map_or(String::new(), |verb| format!("; did you mean {verb}?"));
            Err(Fault::usage(format!("unknown question {verb}{nearest}")))
        }
        _ => Err(usage()),
    }
}

/// `~/x` works although the shell did not expand it.
fn subject(path: &OsStr, workdir: &Path, seen: &dyn Fn(&Path) -> bool) -> Subject {
    let path = Path::new(path);
    let expanded = match (path.strip_prefix("~"), ringfence_sys::identity::home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => workdir.join(path),
    };
    Subject::on_host(&above_links(&expanded, seen), &HostFiles)
}

/// A path whose `..` behind a link goes to what is above that which the link leads to, as the kernel has it.
fn above_links(path: &Path, seen: &dyn Fn(&Path) -> bool) -> PathBuf {
    let mut way = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            let real = Resolver::once(&HostFiles).real(&way).ok().filter(|_| seen(&way));
            way = real.map_or(way, |real| real.path);
            way.pop();
        } else {
            way.push(part);
        }
    }
    way
}

/// A program is looked for in `PATH`, as `run` does; nothing where it is named by its path.
fn program(name: &OsStr, policy: &Policy, inside: bool) -> Option<Subject> {
    if is_path(name) {
        return None;
    }
    let set = policy.environment.set.get("PATH").map(|(value, _)| OsString::from(value));
    let search = set.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found = std::env::split_paths(&search)
        .map(|directory| policy.workdir.join(directory).join(name))
        .filter(|path| path.is_file() && (!inside || seen(policy, path)))
        .map(|path| Subject::on_host(&path, &HostFiles));
    let found: Vec<Subject> = found.collect();
    // What is not shown is passed over inside.
    let shown = |found: &&Subject| decide(policy, &Request::Exec((*found).clone())).allowed;
    found.iter().find(shown).or(found.first()).cloned()
}

fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

/// The answer about a program that no directory of `PATH` has.
fn nowhere(words: &[OsString], policy: &Policy, inside: bool) -> Option<Decision> {
    let [verb, name] = words else { return None };
    if verb != "exec" || name.is_empty() || is_path(name) {
        return None;
    }
    if program(name, policy, inside).is_some() {
        return None;
    }
    let here = subject(name, &policy.workdir, &|_| true);
    let there = here.path.is_file() && (!inside || seen(policy, &here.path));
    let remedy = there.then(|| format!("name it by its path: ./{}", name.display()));
    Some(Decision {
        schema: SCHEMA,
        allowed: false,
        request: Request::Exec(here),
        rule: None,
        layer: "filesystem",
        explanation: format!("{} is in no directory of the sandbox's PATH", name.display()),
        remedy,
        effect: None,
    })
}

/// Who asks as whom is in a header of the request: no rule is about it, and a password is not repeated.
fn http(method: &OsStr, url: &str) -> Result<Request, Fault> {
    let method = method.to_string_lossy().into_owned();
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else {
        return Ok(Request::Http { method, url: url.to_owned() });
    };
    let without = &rest[at + 1..];
    Err(Fault::usage(format!(
        "http {method}: leave out the user name and the password: `{scheme}{without}`"
    )))
}

fn connect(target: &OsStr) -> Result<Request, Fault> {
    let text = target.to_string_lossy();
    let bad = |why: String| Fault::usage(format!("connect {text}: {why}"));
    if text.contains("://") {
        // It says what to leave out; its colon is no port's.
        text.parse::<Host>().map_err(|error| bad(error.to_string()))?;
    }
    let with_port =
        text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    // Without one, the usual is asked about.
    let (host, port) = with_port.unwrap_or((&*text, "443"));
    let port = ringfence_policy::port::port(port).map_err(bad)?;
    let host = host.parse::<Host>().map_err(|error| bad(error.to_string()))?;
    Ok(Request::Connect { host, port })
}
