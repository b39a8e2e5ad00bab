//! What `learn` must not propose without a word: credentials, by whatever name or place they were reached.

use crate::learn_rules::{learn, rules};
use ringfence_tests::{Finished, Person, Place, Running, Tier, everybody, left_out, people};
use std::fs;
use std::os::unix::process::CommandExt;

const SECRET: &str = "SECRET-OF-THE-USER";

/// The home with a key in it, and nothing learnt yet.
fn fresh(place: &Place) {
    let _ = fs::remove_file(place.project("l.toml"));
    place.file("home/.ssh/id_ed25519", format!("{SECRET}\n"));
}

/// A rule is read by the rules of rules: a backslash in a name is no part of what it says.
#[test]
fn an_odd_name_is_proposed_as_itself_and_grants_nothing_else() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/notes.txt", "private\n");
        // Each is the name of another place, read as a rule and not escaped.
        let odd = ["evil/.\\./notes.txt", ".ss\\h/hosts", "a*/hosts", "$HOME/hosts"];
        odd.iter().for_each(|name| _ = place.file(format!("home/{name}"), "odd\n"));
        place.file("home/ab/hosts", "another's\n");
        let reads: String = odd.iter().map(|name| format!("cat ~/'{name}'; ")).collect();
        let learnt =
            learn(place, &["-o", "l.toml"], &format!("{reads} ls ~/'evil/.\\.' >/dev/null"));
        learnt.ends(0).prints("odd\nodd\nodd\nodd");
        let see = format!("{reads} ls -a ~; cat ~/.ssh/id_ed25519 ~/notes.txt ~/ab/hosts");
        let ran = place.sh(&["-p", "l.toml"], &see);
        let all = format!("{}\n{}", rules(place), ran.text());
        assert!(!ran.text().contains(SECRET), "{all}");
        ran.ends(1).prints("odd\nodd\nodd\nodd");
        assert!(!ran.text().contains("private") && !ran.text().contains("another"), "{all}");
        learn(place, &["-p", "l.toml"], &reads).ends(0).says("nothing to propose");
    });
}

#[test]
fn what_a_link_leads_to_is_a_credential_as_by_its_own_name() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        let _ = fs::remove_dir_all(place.at("home/links"));
        place.file("home/.kube/config", format!("{SECRET}\n"));
        place.file("home/.docker/config.json", format!("{SECRET}\n"));
        place.file("home/.docker/daemon.json", "daemon\n");
        place.file("home/data/fine", "fine\n");
        for (name, target) in [
            ("links/plain", "home/.kube/config"),
            ("links/kube", "home/.kube"),
            ("links/all", "home"),
            ("links/docker", "home/.docker"),
            ("links/data", "home/data"),
            ("project/conf", "home/.kube"),
        ] {
            let _ = fs::remove_file(place.at("home").join(name));
            place.link(format!("home/{name}"), place.at(target));
        }
        place.link("home/links/again", "plain");
        let secret = "cat ~/links/plain ~/links/again ~/links/kube/config ~/links/all/.kube/config conf/config; \
                      ls ~/links/kube ~/links/all/";
        let script = format!("{secret}; cat ~/links/docker/daemon.json ~/links/data/fine");
        let learnt = learn(place, &["-o", "l.toml"], &script);
        let rules = rules(place);
        assert!(!learnt.text().contains(SECRET), "{}", learnt.text());
        learnt.ends(0).prints("daemon\nfine");
        for name in ["plain", "again", "kube", "kube/config", "all/.kube/config"] {
            let told =
                format!("filesystem.read ~/links/{name}?: credentials: a cluster's, by a link");
            learnt.says(&told);
            assert!(!rules.contains(&format!("links/{name}?")), "{name}: {rules}");
        }
        learnt.says("filesystem.read ~/links/all?: a home is in it, by a link to ");
        assert!(!rules.contains("conf") && !rules.contains("all"), "{rules}");
        // What is beside a credential is named closely; what is not is as ever.
        assert!(rules.contains("\"~/links/docker/daemon.json?\""), "{rules}");
        assert!(
            rules.contains("\"~/links/data/fine?\"") || rules.contains("\"~/links/data?\""),
            "{rules}"
        );
        let see = "cat ~/links/docker/config.json";
        let ran = place.sh(&["-p", "l.toml"], &format!("{script}; {secret}; {see}"));
        ran.ends(1).prints("daemon\nfine");
        assert!(!ran.text().contains(SECRET), "{}", ran.text());
        // The control: granted by hand it is there.
        let by_hand = place.run(
            &["-r", &place.text("home/links/plain")],
            &["cat", &place.text("home/links/plain")],
        );
        assert_eq!(by_hand.well(), SECRET);
        let traced = place.sh(&["--trace-missing"], "cat ~/links/plain ~/links/data/fine");
        let told: Vec<&str> = traced.err.lines().filter(|line| line.contains("missing:")).collect();
        let of =
            |part: &str| told.iter().find(|line| line.contains(part)).copied().unwrap_or_default();
        assert!(
            of("links/plain").contains("CREDENTIALS (a cluster's, by a link"),
            "{}",
            traced.err
        );
        assert!(
            of("data/fine").contains("--read") && !of("data/fine").contains("CREDENTIALS"),
            "{}",
            traced.err
        );
    });
}

/// As those do who keep such files in a directory of their own.
#[test]
fn what_a_credentials_own_place_leads_to_is_one() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        let _ = fs::remove_file(place.at("home/.kube"));
        place.file("home/kept/kube/config", format!("{SECRET}\n"));
        place.file("home/kept/plain/file", "plain\n");
        place.link("home/.kube", "kept/kube");
        let script = "cat ~/kept/kube/config; cat ~/kept/plain/file";
        let learnt = learn(place, &["-o", "l.toml"], script);
        assert!(!learnt.text().contains(SECRET), "{}", learnt.text());
        learnt.ends(0).says("~/kept/kube/config?: credentials: a cluster's").prints("plain");
        assert!(rules(place).contains("\"~/kept/plain?\""), "the control: {}", rules(place));
        assert!(!rules(place).contains("kube"), "{}", rules(place));
        fs::remove_file(place.at("home/.kube")).unwrap();
    });
}

/// Runs a script as this person on a machine with other accounts, whose homes are in `/srv`, as in the place's
/// `accounts`: only root can make one.
pub(crate) fn with_accounts(place: &Place, accounts: &str, script: &str) -> Option<Finished> {
    if !people().contains(&Person::Root) || !place.has("unshare", "--version") {
        left_out("homes of accounts", "only root puts another list of accounts in place");
        return None;
    }
    let list = place.file("passwd", accounts);
    let (user, group) = place.person.ids();
    let mut command = place.command("unshare");
    command.uid(0).gid(0).env("RF", ringfence_tests::binary()).args(["-m", "sh", "-c"]);
    command.arg(format!(
        "mount --bind {} /etc/passwd && mount --bind {} /srv && mount --bind {} /var/mail && \
         chown -R 4322 /srv/closed && chmod 700 /srv/closed/.config && \
         exec setpriv --reuid {user} --regid {group} --clear-groups sh -c \"$0\"",
        list.display(),
        place.at("accounts").display(),
        place.directory("mail").display(),
    ));
    command.arg(script);
    Some(Running::start(command).finish())
}

/// `HOME` may say anything; and root reads those of everybody.
#[test]
fn what_is_secret_in_the_home_of_an_account_is_so_whatever_home_says() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        for home in ["account", "other"] {
            for secret in [".kube/config", ".netrc"] {
                place.file(format!("accounts/{home}/{secret}"), format!("{SECRET}\n"));
            }
            place.file(format!("accounts/{home}/.config/app/file"), "plain\n");
        }
        // What is closed to root without its capabilities needs no hiding, and can have none.
        place.directory("accounts/closed/.config/gh");
        let (user, group) = place.person.ids();
        let accounts = format!(
            "me:x:{user}:{group}::/srv/account:/bin/sh\nroot:x:0:0::/root:/bin/sh\n\
             other:x:4321:4321::/srv/other:/bin/sh\n\
             closed:x:4322:4322::/srv/closed:/bin/sh\nsync:x:4:65534::/bin:/bin/sync\n"
        );
        let script = |verb: &str| {
            format!(
                "$RF {verb} -- sh -c 'cat /srv/account/.config/app/file; for i in account other; do \
                 cat /srv/$i/.kube/config /srv/$i/.netrc; done; cat /srv/other/.config/app/file; \
                 ls /srv/account /srv/other /root; ls /bin/ >/dev/null'"
            )
        };
        let Some(learnt) = with_accounts(place, &accounts, &script("learn -o l.toml")) else {
            return;
        };
        let rules = rules(place);
        assert!(!learnt.text().contains(SECRET), "{}\n{}", learnt.text(), learnt.err);
        for home in ["account", "other"] {
            for (secret, why) in [(".kube/config", "a cluster's"), (".netrc", "of many programs")] {
                learnt.says(&format!("filesystem.read /srv/{home}/{secret}?: credentials: {why}"));
            }
            learnt.says(&format!("filesystem.read /srv/{home}?: a home is in it"));
        }
        learnt.says("filesystem.read /srv/other/.config/app/file?: it is in another user's home");
        learnt.says("filesystem.read /root?: a home is in it");
        let only = "read = [\n\"/srv/account/.config/app?\",\n]";
        assert!(rules.contains(only) && rules.matches('?').count() == 1, "{rules} {}", learnt.err);
        let ran = with_accounts(place, &accounts, &script("run -p l.toml")).expect("as before");
        assert!(!ran.text().contains(SECRET) && ran.text().contains("plain"), "{}", ran.text());
        let root = "HOME=/ $RF learn -- cat /srv/account/.kube/config /srv/other/.config/app/file";
        let learnt = with_accounts(place, &accounts, root).expect("as before");
        assert!(
            !learnt.text().contains(SECRET) && learnt.text().contains("plain"),
            "{}",
            learnt.text()
        );
        learnt.says("srv/account/.kube/config?: credentials: a cluster's");
        learnt.says("srv/other/.config/app/file?: it is in another user's home");
    });
}

#[test]
fn the_mail_and_what_shows_control_groups_are_left_to_the_user() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("mail/me", format!("{SECRET}\n"));
        place.file("home/Maildir/new/1", format!("{SECRET}\n"));
        place.directory("accounts/closed/.config");
        let script = |verb: &str| {
            format!(
                "$RF {verb} -- sh -c 'cat /var/mail/me ~/Maildir/new/1; \
                 ls /sys /sys/fs /sys/class >/dev/null; cat /var/spool/mail/me; echo done'"
            )
        };
        let Some(learnt) = with_accounts(place, "", &script("learn -o l.toml")) else { return };
        let rules = rules(place);
        assert!(!learnt.text().contains(SECRET), "{}\n{rules}", learnt.text());
        learnt.ends(0).prints("done");
        for (path, why) in [
            ("/var/mail/me", "credentials: the mail"),
            ("/var/spool/mail/me", "credentials: the mail"),
            ("~/Maildir/new/1", "credentials: the mail"),
            ("/sys", "it shows the control groups"),
            ("/sys/fs", "it shows the control groups"),
        ] {
            learnt.says(&format!("not proposed: filesystem.read {path}?: {why}"));
        }
        assert!(rules.contains("read = [\n\"/sys/class?\",\n]"), "the control: {rules}");
        let ran = with_accounts(place, "", &script("run -p l.toml")).expect("as before");
        assert!(!ran.text().contains(SECRET) && ran.text().contains("done"), "{}", ran.text());
    });
}

/// The places that variables tell, in one list with the variables that are hidden for it.
#[test]
fn what_a_variable_leads_to_is_a_credential() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        let told = [
            ("KUBECONFIG", "one", "a cluster's"),
            ("NETRC", "two", "of many programs"),
            ("PGPASSFILE", "three", "a database's"),
            ("npm_config_userconfig", "four", "npm's"),
            ("AWS_SHARED_CREDENTIALS_FILE", "five", "a cloud's"),
            ("AWS_CONFIG_FILE", "six", "a cloud's"),
            ("DOCKER_CONFIG", "ships/config.json", "registries'"),
        ];
        place.file("home/told/ships/daemon.json", "daemon\n");
        let mut script = String::new();
        let mut command = place.command(ringfence_tests::binary());
        for (variable, name, _) in told {
            let path = place.file(format!("home/told/{name}"), format!("{SECRET}\n"));
            let value = if variable == "DOCKER_CONFIG" {
                place.at("home/told/ships")
            } else {
                path.clone()
            };
            command.env(variable, value);
            script.push_str(&format!("cat {}; ", path.display()));
        }
        script.push_str("cat ~/told/ships/daemon.json");
        command.args(["learn", "-o", "l.toml", "--", "sh", "-c", &script]);
        let learnt = Running::start(command).finish();
        let rules = rules(place);
        assert!(!learnt.text().contains(SECRET), "{}\n{rules}", learnt.text());
        learnt.ends(0).prints("daemon");
        for (_, name, why) in told {
            learnt.says(&format!("filesystem.read ~/told/{name}?: credentials: {why}"));
        }
        assert!(rules.contains("read = [\n\"~/told/ships/daemon.json?\",\n]"), "{rules}");
        let ran = place.sh(&["-p", "l.toml"], &script);
        assert!(!ran.text().contains(SECRET), "{}", ran.text());
        ran.ends(0).prints("daemon");
        // The control: what the policy grants is shown, and so is what no variable tells of.
        let mut command = place.command(ringfence_tests::binary());
        command.env("NETRC", place.at("home/told/two"));
        command.args([
            "learn",
            "-r",
            &place.text("home/told/two"),
            "--",
            "sh",
            "-c",
            "cat ~/told/two ~/told/one",
        ]);
        let shown = Running::start(command).finish().well();
        assert!(shown.starts_with(&format!("{SECRET}\n{SECRET}\n")), "{shown}");
    });
}

/// The document says so; else the program fails for what its own policy grants, and nothing is proposed.
#[test]
fn what_the_policy_grants_of_credentials_is_there() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        let _ = fs::remove_file(place.project("m.toml"));
        place.file("home/.config/pip/pip.conf", "[global]\n");
        place.file("home/.npmrc", "npm\n");
        place.file("home/.aws/config", "region\n");
        place.file("home/.aws/credentials", format!("{SECRET}\n"));
        let script = "cat ~/.config/pip/pip.conf ~/.npmrc ~/.aws/config; cat ~/.aws/credentials ~/.ssh/id_ed25519; \
                      ls ~/.aws";
        let grants = ["-p", "pip", "-r", "~/.npmrc", "-r", "~/.aws/config", "-o", "l.toml"];
        let learnt = learn(place, &grants, script);
        assert!(!learnt.text().contains(SECRET), "{}", learnt.text());
        learnt.ends(0).prints("[global]\nnpm\nregion\nconfig\ncredentials");
        learnt.says("filesystem.read ~/.aws/credentials?: credentials: a cloud's");
        let learnt = learn(
            place,
            &["-w", "~/.aws", "-o", "m.toml"],
            "cat ~/.aws/config; echo new >~/.aws/new",
        );
        learnt.ends(0).prints("region");
        assert!(!place.at("home/.aws/new").exists(), "what is written is dropped");
    });
}
