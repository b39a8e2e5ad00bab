//! Git's configuration: read as git reads it, judged by what git would run.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use ringfence_policy::gitconfig::Unread;
use ringfence_policy::gitconfig::{executes, executes_in, executes_the_same, last_value, parse};
use ringfence_policy::gitread::{LONGEST_SECTION, MOST, MOST_SETTINGS, Unknown};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

/// Keys and values.
type Settings = Vec<(String, Option<String>)>;

/// What git makes of a configuration: keys and values, or nothing when it refuses. `None` when
/// there is no git to ask.
fn git(text: &[u8]) -> Option<Option<Settings>> {
    let mut child = Command::new("git")
        .args(["config", "--null", "--list", "--file", "-"])
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // Git may stop reading at an error.
    let _ = child.stdin.take()?.write_all(text);
    let output = child.wait_with_output().ok()?;
    if !output.status.success() {
        return Some(None);
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let entries = text.split_terminator('\0').map(|entry| match entry.split_once('\n') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (entry.to_owned(), None),
    });
    Some(Some(entries.collect()))
}

fn ours(text: &str) -> Option<Settings> {
    let settings = parse(text).ok()?;
    Some(settings.into_iter().map(|setting| (setting.key(), setting.value)).collect())
}

/// Git takes what is before the first dot for the section, and what is before the last one is the name's.
#[test]
fn a_key_is_judged_as_git_takes_it_apart() {
    for text in [
        "[remote.up \"stream\"]\nuploadpack = cmd\n",
        "[lfs.customtransfer \"x\"]\npath = cmd\n",
        "[tig \"bind\"]\ngeneric = q !cmd\n",
        "[gitflow \"path\"]\nhooks = x\n",
    ] {
        assert!(executes(text).is_some(), "{text}");
    }
    let directory = Path::new("/w/.git/modules/x");
    let worktree =
        |value: &str| executes_in(format!("[core]\nworktree = {value}\n"), directory, None);
    assert_eq!(worktree("../../../x"), None);
    // A relative name to git, since it begins with a form feed.
    assert!(worktree("\u{c}/w/x/../../../../../../../../elsewhere").is_some());
}

#[test]
fn the_syntax_is_gits() {
    let texts = [
        "[core]\n\tbare = false\n",
        "[Core] BARE\n",
        "[core] a = 1 ; b\n[x \"Y z\"] k=v # c",
        "[x \"a\\\"b\\\\c\"]\nk = \"q # not a comment\" # a comment",
        "[x.Sub]\nk = a\\\n  b\n",
        "[x.Sub \"Q.r\"]\nk = v\n[a.b.c]\nk = w\n",
        "[a]\nk = \u{c}v\u{c}\n",
        "[a]\u{c}k = v\n",
        "[a]\nk = \"a b\"  c   \n k2 =\n k3 = \\t\\n\\\\\\\"\n",
        "\u{feff}[a]\nk=v\r\nl=w\\\r\nx\r\n",
        "[a]k=v\n[b]\n[a]\nk=w",
        "# c\n; d\n\n[a]\n#x\nk = v;c\n",
        "[a]\nk = v\\",
        "[a]\nk = \"open\n",
        "[a]\nk = \\q\n",
        "[a\nk = v\n",
        "[a \"x]\nk=v\n",
        "[a \"x\" ]\nk=v\n",
        "[]\nk=v\n",
        "k = v\n",
        "[a]\n1k = v\n",
        "[a]\nk_x = v\n",
        "[a]\nk v\n",
        "[a b]\nk=v",
        "[a-b.c-d]\nk-l=v",
        "[a]\nk=v]\n[b]x=y",
        "[a]\n  k = a  \"  b  \"  c  \n",
        "[a \"\"]\nk=v",
        "[a.]\nk=v",
        "[a]\nk",
        "[a]\nk =",
        "[a]\nk = v # \\\nl = w\n",
        "[a]\nk = \"x\\\ny\"\n",
        "[a]\nk = v \\",
        "[a]\nk = v  \\\n\n",
        "[a]\nk = v  \\\n# l\n",
        "[a]\nk = \\\n  v\n",
        "[a]\nk = \"\"  v\n",
        "[a]\nk = \\\n  \"\" \\\n v\n",
    ];
    for text in texts {
        let Some(theirs) = git(text.as_bytes()) else { return };
        assert_eq!(ours(text), theirs, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_made_up_configuration_is_read_as_git_reads_it(
        parts in prop::collection::vec(prop_oneof![
            Just("[a]"), Just("[a \"b\"]"), Just("["), Just("]"), Just("\""), Just("\\"), Just("\n"), Just(" "),
            Just("k"), Just("="), Just("#"), Just(";"), Just("\r\n"), Just("\t"), Just("v w"), Just("\\n"), Just("-1"), Just("."), Just("\0"),
        ], 0..14),
        section in any::<bool>(),
    ) {
        let text = format!("{}{}", if section { "[s]\n" } else { "" }, parts.concat());
        if text.contains('\0') {
            prop_assert_eq!(ours(&text), None);
        } else if let Some(theirs) = git(text.as_bytes()) {
            // Git before 2.45 makes a space of a tab within a value.
            let plain = |settings: Option<Settings>| format!("{settings:?}").replace("\\t", " ");
            prop_assert_eq!(plain(ours(&text)), plain(theirs), "{:?}", text);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}|[\\[\\]a\"\\\\\n#;= ]{0,60}") {
        let _ = parse(&text);
        let _ = executes(&text);
    }
}

#[test]
fn what_makes_git_run_a_program_is_found() {
    let cases = [
        ("[core]\nfsmonitor = ./evil", "core.fsmonitor"),
        ("[CORE]\nFsMonitor = \"./evil\"", "core.fsmonitor"),
        ("[core]\nfsmonitor = tr\\\nxue", "core.fsmonitor"),
        ("[core]\nhooksPath = .evil", "core.hookspath"),
        ("[core]\nsshCommand = evil", "core.sshcommand"),
        ("[core]\neditor = evil", "core.editor"),
        ("[core]\npager = evil", "core.pager"),
        ("[core]\naskPass = evil", "core.askpass"),
        ("[core]\ngitProxy = evil", "core.gitproxy"),
        ("[core]\nalternateRefsCommand = evil", "core.alternaterefscommand"),
        ("[core]\nworktree = ../../..", "core.worktree"),
        ("[diff]\ntool = ../../w/evil", "diff.tool"),
        ("[merge]\nguiTool = /w/evil", "merge.guitool"),
        ("[pull]\ntwohead = x/run", "pull.twohead"),
        ("[diff]\nexternal = evil", "diff.external"),
        ("[diff \"x\"]\ncommand = evil", "diff.x.command"),
        ("[diff \"x\"]\ntextconv = evil", "diff.x.textconv"),
        ("[diff.x]\ntextconv = evil", "diff.x.textconv"),
        ("[filter \"x\"]\nclean = evil", "filter.x.clean"),
        ("[filter \"x\"]\nsmudge = evil", "filter.x.smudge"),
        ("[filter \"x\"]\nprocess = evil", "filter.x.process"),
        ("[merge \"x\"]\ndriver = evil", "merge.x.driver"),
        ("[gpg]\nprogram = evil", "gpg.program"),
        ("[gpg \"ssh\"]\nprogram = evil", "gpg.ssh.program"),
        ("[gpg \"ssh\"]\ndefaultKeyCommand = evil", "gpg.ssh.defaultkeycommand"),
        ("[credential]\nhelper = evil", "credential.helper"),
        (
            "[credential \"https://example.org\"]\nhelper = evil",
            "credential.https://example.org.helper",
        ),
        ("[sequence]\neditor = evil", "sequence.editor"),
        ("[pager]\nlog = evil", "pager.log"),
        ("[browser \"x\"]\ncmd = evil", "browser.x.cmd"),
        ("[man \"x\"]\npath = evil", "man.x.path"),
        ("[difftool \"x\"]\ncmd = evil", "difftool.x.cmd"),
        ("[mergetool \"x\"]\npath = evil", "mergetool.x.path"),
        ("[protocol \"ext\"]\nallow = always", "protocol.ext.allow"),
        ("[remote \"o\"]\nuploadpack = evil", "remote.o.uploadpack"),
        ("[remote \"o\"]\nreceivepack = evil", "remote.o.receivepack"),
        ("[remote \"o\"]\nvcs = evil", "remote.o.vcs"),
        ("[remote \"o\"]\nurl = ext::sh -c evil", "remote.o.url"),
        ("[branch \"m\"]\nremote = ext::sh", "branch.m.remote"),
        ("[url \"ext::sh -c x \"]\ninsteadOf = git@", "url.ext::sh -c x .insteadof"),
        ("[submodule \"s\"]\nupdate = !evil", "submodule.s.update"),
        ("[submodule \"s\"]\nurl = ext::sh", "submodule.s.url"),
        ("[alias]\nst = !evil", "alias.st"),
        ("[alias]\nst = difftool --extcmd=evil", "alias.st"),
        ("[include]\npath = ../evil", "include.path"),
        ("[includeIf \"gitdir:/\"]\npath = evil", "includeif.gitdir:/.path"),
        ("[interactive]\ndiffFilter = evil", "interactive.difffilter"),
        ("[sendemail]\nsendmailCmd = evil", "sendemail.sendmailcmd"),
        ("[sendemail \"i\"]\nsmtpServer = /tmp/evil", "sendemail.i.smtpserver"),
        ("[trailer \"x\"]\ncmd = evil", "trailer.x.cmd"),
        ("[trailer \"x\"]\ncommand = evil", "trailer.x.command"),
        ("[init]\ntemplateDir = evil", "init.templatedir"),
        ("[uploadpack]\npackObjectsHook = evil", "uploadpack.packobjectshook"),
        ("[tar \"x\"]\ncommand = evil", "tar.x.command"),
        ("[hook \"x\"]\ncommand = evil", "hook.x.command"),
        ("[gc]\nrecentObjectsHook = evil", "gc.recentobjectshook"),
        ("[guitool \"x\"]\ncmd = evil", "guitool.x.cmd"),
        ("[instaweb]\nhttpd = evil", "instaweb.httpd"),
        ("[http]\nproxy = evil", "http.proxy"),
        ("[http \"https://example.org\"]\nsslVerify = false", "http.https://example.org.sslverify"),
        ("[lfs \"customtransfer.x\"]\npath = evil", "lfs.customtransfer.x.path"),
        ("[imap]\ntunnel = evil", "imap.tunnel"),
        ("[a]\nk = v\n[core] fsmonitor = evil", "core.fsmonitor"),
        ("[web]\nbrowser = x", "web.browser"),
        ("[mergetool \"vimdiff\"]\nlayout = `evil`", "mergetool.vimdiff.layout"),
        ("[tig]\ndiff-highlight = ./evil", "tig.diff-highlight"),
        ("[secrets]\nproviders = ./evil", "secrets.providers"),
        ("[instaweb]\ngitwebdir = ./evil", "instaweb.gitwebdir"),
        ("[git-p4]\nport = rsh:./evil", "git-p4.port"),
        ("[remote \"o\"]\nannex-ssh-options = -oProxyCommand=evil", "remote.o.annex-ssh-options"),
        ("[remote \"o\"]\nannex-rsync-transport = evil", "remote.o.annex-rsync-transport"),
        ("[annex]\nyoutube-dl-options = --exec=evil", "annex.youtube-dl-options"),
        ("[transcrypt]\nopenssl-path = ./evil", "transcrypt.openssl-path"),
        ("[patatt]\ngpg-bin = ./evil", "patatt.gpg-bin"),
        ("[http]\ndelegation = always", "http.delegation"),
        ("[protocol \"ext\"]\nallow = user", "protocol.ext.allow"),
        ("[protocol]\nallow = user", "protocol.allow"),
        ("[remote \"o\"]\nurl = ext://evil", "remote.o.url"),
        ("[url \"ext:\"]\ninsteadOf = x", "url.ext:.insteadof"),
        ("[url \"e\"]\npushInsteadOf = _", "url.e.pushinsteadof"),
        ("[url \"\"]\ninsteadOf = http://h/", "url..insteadof"),
        ("[url \"evil://h/\"]\ninsteadOf = https://h/", "url.evil://h/.insteadof"),
        ("[format]\noutputDirectory = /home/a/.bashrc.d", "format.outputdirectory"),
        ("[branch \"m\"]\nmergeOptions = --no-ff -s evil", "branch.m.mergeoptions"),
        ("[sendemail]\nsmtpServerOption = -Xfile", "sendemail.smtpserveroption"),
        ("[gui]\ndiffopts = --output=file", "gui.diffopts"),
        ("[cola]\nterminal = evil", "cola.terminal"),
        ("[credential]\ntrace = file", "credential.trace"),
        ("[branchless \"test.alias\"]\nx = evil", "branchless.test.alias.x"),
        // Names that git puts into commands of its own.
        ("[remote \"--upload-pack=evil;\"]\nurl = .", "remote.--upload-pack=evil;.url"),
        ("[remote \"-o\"]\npromisor = true", "remote.-o.promisor"),
        ("[remote \"ext::evil\"]\npromisor = true", "remote.ext::evil.promisor"),
        ("[remotes]\ndefault = a --upload-pack=evil", "remotes.default"),
        ("[extensions]\npartialClone = --upload-pack=evil", "extensions.partialclone"),
        ("[branch \"m\"]\nremote = --upload-pack=evil", "branch.m.remote"),
        ("[remote]\npushDefault = --receive-pack=evil", "remote.pushdefault"),
        ("[checkout]\ndefaultRemote = -x", "checkout.defaultremote"),
        ("[remote \"o\"]\ntagOpt = --upload-pack=evil", "remote.o.tagopt"),
        ("[submodule \"-x\"]\nactive = true", "submodule.-x.active"),
        // What becomes a line of a rebase's list, or the name of a file.
        ("[i18n]\nlogOutputEncoding = IBM922", "i18n.logoutputencoding"),
        ("[i18n]\ncommitEncoding = ISO-2022-JP-2", "i18n.commitencoding"),
        ("[i18n]\ncommitEncoding = latin1//TRANSLIT", "i18n.commitencoding"),
        ("[format]\nsuffix = /../../x", "format.suffix"),
        ("[core]\nprotectNTFS = false", "core.protectntfs"),
        ("[core]\nsharedRepository = 0666", "core.sharedrepository"),
        (
            "[gitoxide \"ssh\"]\ncommandWithoutShellFallback = evil",
            "gitoxide.ssh.commandwithoutshellfallback",
        ),
        ("[lfs]\nstorage = /home/a", "lfs.storage"),
        ("[machete \"github\"]\ndomain = example.org", "machete.github.domain"),
        // Where empty is not none.
        ("[remote \"o\"]\nuploadpack =", "remote.o.uploadpack"),
        ("[remote \"o\"]\nreceivepack = \"\"", "remote.o.receivepack"),
        ("[url \"ext::sh -c evil \"]\ninsteadOf =", "url.ext::sh -c evil .insteadof"),
        ("[http]\nsslVerify =", "http.sslverify"),
        ("[core]\nprotectHFS =", "core.protecthfs"),
        ("[include]\npath =", "include.path"),
        ("[svn]\nconfigDir = evil", "svn.configdir"),
        ("[svn-remote \"svn\"]\nurl = svn+evil://h/p", "svn-remote.svn.url"),
        ("[stgit \"alias\"]\nseries = evil", "stgit.alias.series"),
        ("[clangFormat]\nbinary = evil", "clangformat.binary"),
        ("[gitreview]\nremote = evil", "gitreview.remote"),
        ("[remote \"o\"]\nurl = ::x", "remote.o.url"),
        ("[extensions]\nrefStorage = files:///home/a", "extensions.refstorage"),
        // Who is given a password.
        ("[imap]\nhost = example.org", "imap.host"),
        ("[sendemail]\nsmtpServer = example.org", "sendemail.smtpserver"),
        ("[tig]\nmain-options = --output=file", "tig.main-options"),
        ("[remote \"o\"]\ngcrypt-rsync-put-flags = -e evil", "remote.o.gcrypt-rsync-put-flags"),
        ("[gitflow \"release.finish\"]\nmessage = $(evil)", "gitflow.release.finish.message"),
        ("[changelog]\nopts = --output=file", "changelog.opts"),
        ("[transcrypt]\ncrypt-dir = evil", "transcrypt.crypt-dir"),
        ("[instaweb]\nport = evil", "instaweb.port"),
        // What a git of tomorrow may read.
        ("[core]\nmadeUp = evil", "core.madeup"),
        ("[fetch]\nbundleURI = evil", "fetch.bundleuri"),
        ("[trace2]\neventTarget = /home/a/.bashrc", "trace2.eventtarget"),
    ];
    for (text, key) in cases {
        assert_eq!(executes(text).as_deref(), Some(key), "{text}");
    }
    assert_eq!(executes("[core]\nk = \"open").as_deref(), Some("line 2, which git cannot read"));
}

#[test]
fn what_git_itself_writes_is_harmless() {
    let text = r#"
[core]
	repositoryformatversion = 1
	filemode = true
	bare = false
	logallrefupdates = true
	fsmonitor = true
	excludesFile = .gitignore
	pager =
[remote "origin"]
	url = git@example.org:a/b.git
	pushurl = https://[2001:db8::1]/a.git
	fetch = +refs/heads/*:refs/remotes/origin/*
	partialclonefilter = blob:none
[branch "main"]
	remote = origin
	merge = refs/heads/main
	description = "- runs !important"
[submodule "lib"]
	active = true
	url = ../lib.git
	update = rebase
	path = lib
	branch = .
[extensions]
	worktreeConfig = true
	objectFormat = sha256
[user]
	name = A
	email = a@example.org
	signingkey = ~/.ssh/id.pub
[commit]
	gpgsign = true
[gpg]
	format = ssh
[credential]
	helper =
	username = a
[pager]
	log = false
[diff]
	algorithm = histogram
	tool = vimdiff
[merge]
	conflictStyle = zdiff3
[protocol "file"]
	allow = user
[protocol "ext"]
	allow = never
[url "git@example.org:"]
	insteadOf = https://example.org/
[url "ssh://example.org/"]
	pushInsteadOf = https://example.org/
[branch "next"]
	mergeOptions = --no-ff --log
[sendemail]
	smtpuser = me
	to = list@example.org
[lfs]
	repositoryformatversion = 0
[clean]
	requireForce = true
[http "https://example.org/proxied"]
	proxy =
	cookieFile =
[remote "q"]
	proxy =
[filter "x"]
	smudge =
[annex]
	uuid = 1
	version = 10
[remote "p"]
	annex-uuid = 2
	annex-ignore = true
[tig]
	diff-highlight = true
[mergetool]
	keepBackup = false
[http]
	delegation = none
[git-p4]
	client = c
[remote]
	pushDefault = origin
[remote "up/stream"]
	tagOpt = --no-tags
	gh-resolved = base
	lfsurl = https://example.org/lfs
[remotes]
	all = origin up/stream
[branch "topic"]
	vscode-merge-base = origin/main
	base = main
[branch]
	sort = -committerdate
[tag]
	sort = -version:refname
[core]
	whitespace = -trailing-space
	compression = -1
[fetch "fsck"]
	missingEmail = ignore
[i18n]
	commitEncoding = ISO-8859-15
	logOutputEncoding = utf-8
[format]
	suffix = .txt
	signature = -- me
[http "https://example.org/"]
	extraheader = AUTHORIZATION: basic x
[lfs "https://example.org/lfs"]
	access = basic
	locksverify = true
[gitflow "branch"]
	master = main
[svn-remote "svn"]
	url = svn+ssh://example.org/a
	fetch = :refs/remotes/trunk
[svn]
	authorsfile = authors
[remote "aosp"]
	projectname = a
	review = https://review.example.org/
[credential]
	validate = true
[http]
	sslVerify = true
[gitflow "path"]
	hooks = /home/a/project/.git/hooks
[diff "image"]
	binary = true
[diff]
	srcPrefix = old/
[oh-my-zsh]
	hide-dirty = 1
[gui]
	wmstate = zoomed
	geometry = 1x1+1+1 1 1
[maintenance "gc"]
	schedule = daily
"#;
    assert_eq!(executes(text), None);
    assert_eq!(executes(""), None);
}

#[test]
fn a_submodules_worktree_is_harmless_within_its_tree() {
    let text = |place: &str| format!("[core]\n\tworktree = {place}\n");
    let good = |directory: &str, place: &str, project: Option<&str>| {
        executes_in(text(place), Path::new(directory), project.map(Path::new)).is_none()
    };
    assert!(good("/w/.git/modules/lib", "../../../lib", None));
    assert!(good("/w/.git/modules/a/modules/b", "/w/a/b", None));
    assert!(good("/w/.git", "..", None) && good("/w/.git", "/w", Some("/w")));
    assert!(!good("/w/.git", "../sub", None) && !good("/w/.git", "../../v", None));
    for bad in [
        "/w",
        "/",
        "/v",
        "/w/.git/hooks",
        "/w/.git",
        "/w/sub/.git/hooks",
        "/w/.vscode",
        "/w/a/.husky/_",
    ] {
        assert!(!good("/w/.git/modules/lib", bad, Some("/w")), "{bad}");
        // Nor of a repository that is called something else, or lies in the project.
        assert!(
            !good("/w/lib.git", bad, Some("/w")) && !good("/w/sub/.git", bad, Some("/w")),
            "{bad}"
        );
    }
    assert!(!good("/w/lib.git", ".", None) && !good("/w/lib.git", "hooks", Some("/w")));
    // What agents keep elsewhere of the project.
    assert!(good("/state/x", "/w", Some("/w")) && good("/state/x/.git", "/w", Some("/w")));
    assert!(!good("/state/x", "/w/.git/hooks", Some("/w")) && !good("/state/x", "/w", None));
    assert_eq!(executes(text("../../../lib")).as_deref(), Some("core.worktree"));
}

/// All settings of a section share its name: a small file must not become a large list.
#[test]
fn what_is_held_of_a_configuration_is_no_more_than_it_has() {
    let long = "s".repeat(LONGEST_SECTION - "[x \"\"]".len());
    let text = format!("[x \"{long}\"]\n{}", "a\n".repeat(MOST_SETTINGS));
    let settings = parse(&text).unwrap();
    assert_eq!((settings.len(), settings[7].key()), (MOST_SETTINGS, format!("x.{long}.a")));
    let mut shared: HashMap<*const u8, usize> = HashMap::new();
    let mut held = 0;
    for setting in &settings {
        for name in [Some(&setting.section), setting.subsection.as_ref()].into_iter().flatten() {
            shared.insert(Rc::as_ptr(name).cast(), name.len());
        }
        held += setting.name.capacity() + setting.value.as_ref().map_or(0, String::capacity);
    }
    held += shared.values().sum::<usize>();
    // A name has a little room to grow.
    assert!(held < 8 * text.len(), "{held} of {}", text.len());
}

#[test]
fn what_is_beyond_a_bound_is_not_known() {
    let long = |length: usize| format!("[x \"{}\"]\n\ta\n", "s".repeat(length - "[x \"\"]".len()));
    let many = |number: usize| format!("[x]\n{}", "a\n".repeat(number));
    let large = |bytes: usize| "#".repeat(bytes);
    let most = MOST as usize;
    for (known, beyond, why) in [
        (long(LONGEST_SECTION), long(LONGEST_SECTION + 1), Unknown::Section),
        (many(MOST_SETTINGS), many(MOST_SETTINGS + 1), Unknown::Settings),
        (large(most), large(most + 1), Unknown::Large),
    ] {
        assert!(parse(&known).is_ok() && executes(&known).is_none(), "{why:?}");
        assert_eq!(parse(&beyond), Err(Unread::Unknown(why)));
        assert!(executes(&beyond).unwrap().starts_with("it has "), "{why:?}");
        assert!(!executes_the_same(&beyond, &beyond, Path::new("/w/.git")), "{why:?}");
    }
    // As small a file as it takes: three million bytes, and half a million names.
    let small = format!("[x \"{}\"]\n{}", "A".repeat(3_000_000), "a\n".repeat(500_000));
    assert!(small.len() < most);
    assert_eq!(parse(&small), Err(Unread::Unknown(Unknown::Section)));
}

/// To git a key ends at a zero byte, and so does a value: what stands behind it is not seen by who looks at the whole.
#[test]
fn a_zero_byte_anywhere_makes_a_configuration_one_that_is_not_known() {
    let zero = Err(Unread::Unknown(Unknown::Zero));
    for text in [
        "[core \"fsmonitor\0\"]\n\tx = ./fs\n",
        "[filter \"x.process\0y\"]\n\tx = ./fs\n",
        "[a]\n\tb = c\0\n",
        "# \0\n",
        "\0",
    ] {
        assert_eq!(parse(text), zero, "{text:?}");
        assert_eq!(executes(text).as_deref(), Some("it has a zero byte"));
        assert_eq!(parse(text.replace('\0', "")).err(), None, "the control: {text:?}");
    }
}

#[test]
fn the_last_value_counts() {
    assert_eq!(
        last_value("[core]\nhooksPath=a\n[Core]\nhookspath=b", "core", "hookspath").as_deref(),
        Some("b")
    );
    assert_eq!(last_value("[core \"x\"]\nhooksPath=a", "core", "hookspath"), None);
}

#[test]
fn a_submodules_place_may_change_within_the_tree() {
    let of = |place: &str| format!("[core]\n\tbare = false\n\tworktree = {place}\n");
    let modules = Path::new("/w/.git/modules/lib");
    let same = |before: &str, now: &str| executes_the_same(before, now, modules);
    let (inside, none) = (of("../../../lib"), "[core]\n\tbare = false\n");
    assert!(same(&inside, none) && same(none, &inside) && same(&inside, &of("../../../other")));
    let outside = of("../../../../home");
    assert!(!same(&inside, &outside) && !same(none, &outside) && !same(&outside, none));
    assert!(same(&outside, &outside));
}
