//! Which settings of git's own are harmless: what is in none of these lists counts, also what a git of tomorrow reads.
//!
//! The names are those of git-config(1), of git 2.39 and what has come since, in lower case. What other programs keep in
//! git's configuration is not here: [`crate::gitruns`] judges it by what is known of them.

use crate::gitconfig::Setting;

/// Sections that git reads, with the names in them that are harmless whatever stands in their value; `*` for all of them but
/// those that are judged by it.
/// What ends like a program's name ([`crate::gitruns`]) is harmless in none.
const OWN: [(&str, &str); 90] = [
    ("add", "ignoreerrors usebuiltin"),
    ("advice", "*"),
    ("am", "keepcr messageid threeway"),
    ("apply", "ignorewhitespace whitespace"),
    ("attr", "tree"),
    ("author", "email name"),
    ("blame", "*"),
    // Tools note here what a branch comes from, by names of their own.
    ("branch", "*"),
    ("browser", ""),
    ("bundle", ""),
    ("checkout", "guess thresholdforparallelism workers"),
    ("clean", "requireforce"),
    ("clone", "defaultremotename filtersubmodules rejectshallow"),
    ("color", "*"),
    ("column", "*"),
    ("commit", "cleanup gpgsign status template verbose"),
    ("commitgraph", "*"),
    ("committer", "email name"),
    ("completion", ""),
    (
        "core",
        "abbrev alternaterefsprefixes attributesfile autocrlf bare bigfilethreshold checkroundtripencoding \
         checkstat commentchar commentstring commitgraph compression createobject deltabasecachelimit eol \
         excludesfile filemode filesreflocktimeout fscache fsmonitorhookversion fsync fsyncmethod \
         fsyncobjectfiles hidedotfiles ignorecase ignorestat lockfilepid logallrefupdates longpaths \
         loosecompression maxtreedepth multipackindex notesref packedgitlimit packedgitwindowsize \
         packedrefstimeout partialclonefilter precomposeunicode prefersymlinkrefs preloadindex quotepath \
         repositoryformatversion safecrlf sparsecheckout sparsecheckoutcone splitindex streamfilethreshold \
         symlinks trustctime untrackedcache usereplacerefs warnambiguousrefs whitespace",
    ),
    ("credentialcache", "ignoresighup"),
    ("credentialstore", "locktimeoutms"),
    (
        "diff",
        "algorithm autorefreshindex cachetextconv colormoved colormovedws context dirstat dstprefix funcname \
         ignoresubmodules indentheuristic interhunkcontext mnemonicprefix noindex noprefix orderfile relative \
         renamelimit renames srcprefix statgraphwidth statnamewidth submodule suppressblankempty trustexitcode \
         wordregex wserrorhighlight xfuncname",
    ),
    ("difftool", "guidefault prompt trustexitcode"),
    (
        "extensions",
        "compatobjectformat noop objectformat preciousobjects relativeworktrees worktreeconfig",
    ),
    ("fastimport", "unpacklimit"),
    ("feature", "*"),
    (
        "fetch",
        "all fsckobjects negotiationalgorithm output parallel prune prunetags recursesubmodules showforcedupdates \
         unpacklimit writecommitgraph",
    ),
    ("filter", "required"),
    (
        "format",
        "attach cc commitlistformat coverfromdescription coverletter encodeemailheaders filenamemaxlength forceinbodyfrom \
         from headers mboxrd noprefix notes numbered pretty signature signoff subjectprefix suffix thread to useautobase",
    ),
    ("fsck", "*"),
    ("fsmonitor", "allowremote"),
    (
        "gc",
        "aggressivedepth aggressivewindow auto autodetach autopacklimit bigpackthreshold cruftpacks logexpiry \
         maxcruftsize packrefs pruneexpire reflogexpire reflogexpireunreachable repackfilter rerereresolved \
         rerereunresolved worktreepruneexpire writecommitgraph",
    ),
    ("gpg", "allowedsignersfile format mintrustlevel revocationfile"),
    ("grep", "*"),
    ("guitool", ""),
    ("help", "autocorrect format"),
    ("hook", ""),
    (
        "http",
        "emptyauth extraheader followredirects keepalivecount keepaliveidle keepaliveinterval lowspeedlimit \
         lowspeedtime maxrequestbuffer maxrequests minsessions noepsv pinnedpubkey postbuffer proactiveauth \
         proxyauthmethod schannelcheckrevoke sslbackend sslcert sslcertpasswordprotected sslcipherlist sslkey \
         ssltry sslversion useragent version",
    ),
    ("i18n", ""),
    ("imap", "authmethod folder pass preformattedhtml user"),
    ("include", ""),
    ("includeif", ""),
    ("index", "*"),
    ("init", "defaultbranch defaultobjectformat defaultrefformat"),
    ("instaweb", "local"),
    ("interactive", "singlekey"),
    ("log", "*"),
    ("lsrefs", "*"),
    ("mailinfo", "scissors"),
    ("mailmap", "blob file"),
    ("maintenance", "*"),
    ("man", ""),
    (
        "merge",
        "autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff log name recursive renamelimit renames \
         renormalize stat suppressdest verbosity verifysignatures",
    ),
    (
        "mergetool",
        "guidefault hasoutput hideresolved keepbackup keeptemporaries prompt trustexitcode useautomerge \
         writetotemp",
    ),
    ("notes", "*"),
    ("pack", "*"),
    ("pretty", "*"),
    ("promisor", ""),
    ("protocol", "version"),
    ("pull", "ff rebase"),
    (
        "push",
        "autosetupremote default followtags gpgsign negotiate pushoption recursesubmodules usebitmaps \
         useforceifincludes",
    ),
    (
        "rebase",
        "abbreviatecommands autosquash autostash backend forkpoint maxlabellength missingcommitscheck rebasemerges \
         reschedulefailedexec stat updaterefs",
    ),
    ("receive", "*"),
    (
        "remote",
        "fetch followremotehead lfspushurl lfsurl mirror partialclonefilter projectname promisor proxyauthmethod \
         prune prunetags push puttykeyfile review serveroption skipdefaultupdate skipfetchall tagopt timeout",
    ),
    ("remotes", ""),
    ("repack", "*"),
    ("rerere", "*"),
    ("revert", "reference"),
    ("safe", "*"),
    ("sequence", ""),
    ("showbranch", "*"),
    ("sparse", "*"),
    ("splitindex", "*"),
    ("ssh", "variant"),
    ("stash", "*"),
    ("status", "*"),
    (
        "submodule",
        "active alternateerrorstrategy alternatelocation branch fetchjobs fetchrecursesubmodules ignore path \
         propagatebranches recurse shallow update",
    ),
    ("tag", "forcesignannotated gpgsign sort"),
    ("tar", "remote umask"),
    ("trace2", ""),
    ("trailer", "ifexists ifmissing key separators where"),
    ("transfer", "*"),
    ("uploadarchive", "*"),
    ("uploadpack", "*"),
    ("uploadpackfilter", "*"),
    ("user", "email login name signingkey useconfigonly username"),
    ("versionsort", "*"),
    ("web", ""),
    ("worktree", "guessremote userelativepaths"),
];

/// Whether git itself reads a setting that is not known to be harmless.
pub(crate) fn is_unknown(setting: &Setting) -> bool {
    // Git's own names have no hyphen (but `add.ignore-errors` and `extensions.noop-v1`, which are harmless).
    let of = |(section, _): &&(&str, &str)| *section == &*setting.section;
    let Some((section, names)) = OWN.iter().find(of) else { return false };
    let name = setting.name.as_str();
    let checks = *section == "fetch" && setting.subsection.as_deref() == Some("fsck");
    !(*names == "*" || checks || name.contains('-') || names.split(' ').any(|one| one == name))
}

/// Whether a setting may be taken for an option by a program that git gives it to: git puts the names of remotes, for
/// one, into commands of its own as they are (`fetch_objects` in promisor-remote.c).
pub(crate) fn may_be_an_option(setting: &Setting, value: &str) -> bool {
    let is_option = |text: &str| text.starts_with('-');
    if setting.subsection.as_deref().is_some_and(is_option) {
        return true;
    }
    match (&*setting.section, setting.name.as_str()) {
        // Words, each of which is the name of a remote.
        ("remotes", _) => value.split_whitespace().any(is_option),
        // Judged by what they say.
        ("branch", "mergeoptions" | "description") => false,
        ("remote", "tagopt") => is_option(value) && !matches!(value, "--tags" | "--no-tags"),
        // Orders, colours, lists, and what people are called.
        ("color" | "column" | "versionsort", _) | (_, "sort" | "whitespace" | "wordregex") => false,
        ("author" | "committer" | "user", "name") | ("format", "signature") => false,
        _ => is_option(value) && value.parse::<i64>().is_err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_section_is_there_once_and_as_settings_have_it() {
        for (at, (section, names)) in OWN.iter().enumerate() {
            assert!(OWN[at + 1..].iter().all(|(other, _)| other > section), "{section}");
            let names: Vec<&str> = names.split(' ').collect();
            assert!(names.is_sorted_by(|one, next| one < next), "{section}: {names:?}");
            let lower = |text: &str| text == text.to_ascii_lowercase();
            assert!(lower(section) && names.iter().all(|name| lower(name)), "{section}");
        }
    }

    /// What git has of its own is judged by these lists, or has a line of its own in `gitruns`.
    #[test]
    fn each_section_of_gits_is_known() {
        const ELSEWHERE: [&str; 8] =
            ["alias", "credential", "gitcvs", "gitweb", "gui", "pager", "sendemail", "url"];
        let git = std::process::Command::new("git").args(["help", "--config"]).output();
        let Ok(git) = git.map(|git| String::from_utf8_lossy(&git.stdout).to_lowercase()) else {
            return;
        };
        let sections = git.lines().filter_map(|line| line.split_once('.')).map(|(of, _)| of);
        let unknown = sections.filter(|of| {
            !of.contains(' ') && !ELSEWHERE.contains(of) && OWN.iter().all(|(own, _)| own != of)
        });
        assert_eq!(unknown.collect::<Vec<_>>(), [""; 0]);
    }
}
