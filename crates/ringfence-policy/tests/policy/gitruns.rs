//! Which settings of git's configuration count as running something, and which do not.
#![allow(missing_docs)]

use ringfence_policy::gitconfig::executes;

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
