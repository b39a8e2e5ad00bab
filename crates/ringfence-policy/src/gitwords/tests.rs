//! Commands as people write them, and as an attacker would.

use super::{How, programs};

#[track_caller]
fn runs(text: &str, wanted: &[&str]) {
    assert_eq!(of(text, &[How::Run, How::Perhaps]), wanted, "{text}");
}

fn of(text: &str, how: &[How]) -> Vec<String> {
    let found = programs(text).into_iter().filter(|(_, found)| how.contains(found));
    found.map(|(word, _)| word).collect()
}

/// What is not there is held only where it is sure that it would be run.
#[test]
fn what_is_run_is_told_from_what_may_be_a_word_of_another_meaning() {
    for (text, run, perhaps) in [
        ("tools/x %f", &["tools/x"][..], &[][..]),
        ("!f() { ./a; }; f", &["./a"], &[]),
        ("!$HOME/bin/x; \"$(git rev-parse --show-toplevel)/y\"", &["~/bin/x", "./y"], &[]),
        ("!$GOPATH/bin/x; $(brew --prefix)/y; ./z", &["./z"], &["./bin/x", "./y"]),
        ("python3 -W ignore tools/x", &["tools/x"], &["ignore"]),
        ("perl -I lib tools/x", &["tools/x"], &["lib"]),
        ("node -r ./hook.js x", &["./hook.js", "x"], &[]),
        ("bash -o pipefail run.sh ./data", &["run.sh"], &["pipefail"]),
        ("make -f ./x.mk ./data", &["./x.mk"], &[]),
        ("!make TODO.md && $EDITOR docs/TODO.md", &[], &[]),
    ] {
        assert_eq!(of(text, &[How::Run]), run, "{text}");
        assert_eq!(of(text, &[How::Perhaps]), perhaps, "{text}");
    }
}

#[test]
fn words_are_a_shells() {
    for (text, path) in [
        ("scripts/d %f", "scripts/d"),
        ("'/home/u/my proj/a' -x", "/home/u/my proj/a"),
        ("\"my tools/c\" %f", "my tools/c"),
        ("my\\ tools/c %f", "my tools/c"),
        ("$HOME/b/ed", "~/b/ed"),
        ("!$HOME/b/ed", "~/b/ed"),
        ("!\"$HOME\"/b/ed -w", "~/b/ed"),
        ("\"${HOME}/b/ed\" -w", "~/b/ed"),
        ("~/b/ed", "~/b/ed"),
        ("${PWD}/scripts/e", "./scripts/e"),
        ("$PWD/scripts/e", "./scripts/e"),
        ("!\"$(git rev-parse --show-toplevel)/scripts/b.sh\"", "./scripts/b.sh"),
        ("!`git rev-parse --show-toplevel`/scripts/b.sh x", "./scripts/b.sh"),
        ("!$(git rev-parse --git-dir)/tools/x", "./.git/tools/x"),
        ("${GIT_PREFIX:-.}/x", "./x"),
    ] {
        runs(text, &[path]);
    }
}

#[test]
fn the_first_word_of_each_command_is_run() {
    runs("!git add src/main.rs && git commit -m wip", &[]);
    runs("!git log -- ./src/main.c | ./tools/show ./data", &["./tools/show"]);
    runs("!f() { git fetch ./o; ./a \"$@\"; if ./b; then ./c; fi; }; f", &["./a", "./b", "./c"]);
    runs("!git fetch > ./log 2>&1 < ./in; (./d ./data)", &["./d"]);
    runs("!echo $(./x ./data) # ./y\n./z", &["./x", "./z"]);
    runs("!cat '& ./x'; echo \"; ./y\"", &[]);
    runs("!env A=1 -u B ./x ./data", &["./x"]);
    runs("!timeout 5 ./x ./data; sudo -u ada ./y; xargs -0 git add ./src", &["./x", "./y"]);
    runs("!PAGER='./page -x' git log ./data", &["./page"]);
    runs("!S=$HOME/s; $S", &["~/s"]);
    runs("!git bisect run ./t && find . -exec ./u {} \\;", &["./t", "./u"]);
    runs("-e ./x --rsh=./y", &["./x", "./y"]);
    runs("generic X !./x ./data", &["./x"]);
}

#[test]
fn an_interpreter_runs_a_file_and_is_given_others() {
    for (text, wanted) in [
        ("!node -p \"require('./package.json').version\"", &[][..]),
        ("node scripts/merge.js package-lock.json %A %O %B", &["scripts/merge.js"]),
        ("node -r ./hook.js --import=./i.mjs x.js data", &["./hook.js", "./i.mjs", "x.js"]),
        ("python3.12 -W ignore tool.py ./data", &["ignore", "tool.py"]),
        ("python -c 'open(\"./data\")' ./data", &[]),
        ("python3 -m json.tool ./data", &[]),
        ("perl -lane 'print' ./data", &[]),
        ("./venv/bin/python x.py", &["./venv/bin/python", "x.py"]),
        ("bash -ex -o pipefail run.sh ./data", &["pipefail", "run.sh"]),
        ("!sh -c './x \"$1\" && sh -lc \"./y ./data\"' -", &["./x", "./y"]),
        ("!. ./env; source ./other; sh < ./third", &["./env", "./other", "./third"]),
        ("deno run -A x.ts ./data", &["x.ts"]),
        ("ssh -F ./cfg -o ProxyCommand='./p %h' -i ./key", &["./cfg", "./p"]),
        ("make -f ./x.mk", &["./x.mk"]),
        ("!eval \"./x ./data\"", &["./x"]),
    ] {
        runs(text, wanted);
    }
}

#[test]
fn a_line_without_end_is_read_to_its_end() {
    for text in ["'./x", "\"./x", "./x\\", "$(./x", "`./x", "${./x", "$", "`", "\\", "${"] {
        programs(text);
    }
    programs(&"$(".repeat(100_000));
    programs(&"`$(sh -c '".repeat(10_000));
    assert_eq!(programs(&"./x;".repeat(1000)).len(), super::MOST);
}

#[test]
fn what_runs_a_command_has_words_of_its_own() {
    for (text, wanted) in [
        ("!flock .git/lk ./tools/a ./data", &["./tools/a"][..]),
        ("!flock -n .git/lk -c './tools/a ./data'", &["./tools/a"]),
        ("!xargs -a ./list ./tools/a", &["./tools/a"]),
        ("!xargs -a ./list git add", &[]),
        ("!strace -f -o /tmp/l ./a", &["./a"]),
        ("!env -i ./x ./data", &["./x"]),
        ("!env -S './x ./data'", &["./x"]),
        ("!nice -n5 ./x; nice -n 5 ./y", &["./x", "./y"]),
        ("!timeout -k 1 5 ./x ./data", &["./x"]),
        ("!watch -n 1 './x ./data'", &["./x", "./x ./data"]),
        ("!uv run tools/a.py ./data; uv run b.py", &["tools/a.py", "tools/a.py", "b.py"]),
        ("!npx tsx scripts/a.ts src/b.ts", &["scripts/a.ts"]),
        ("!yarn run tsx scripts/a.ts src/b.ts; su -c './x ./y'", &["scripts/a.ts", "./x"]),
        ("!trap ./tools/a EXIT; git log", &["./tools/a"]),
        ("!bash -c 'function f { ./tools/a; }; f'", &["./tools/a"]),
        ("!bash -c -- ./tools/a", &["./tools/a"]),
        ("!cat <<E\ndon't\nE\n./tools/a", &["./tools/a"]),
        ("!sh <<-'E'\n\t./x ./data\n\tE\n./y", &["./x", "./y"]),
        ("!sh <<< ./x", &["./x"]),
        ("ssh -o \"ProxyCommand ./tools/a %h\"", &["./tools/a"]),
        ("ssh -oProxyCommand=./tools/a", &["./tools/a"]),
    ] {
        runs(text, wanted);
    }
}

#[test]
fn git_runs_what_its_options_say() {
    for (text, wanted) in [
        ("git rebase -x ./tools/a main", &["./tools/a"][..]),
        ("git rebase -ix './tools/a ./data'", &["./tools/a"]),
        ("git rebase --exec ./tools/a ./data", &["./tools/a"]),
        ("!git rebase --exec='./tools/a'", &["./tools/a"]),
        ("git -c core.editor='./tools/a -w' commit ./b", &["./tools/a -w", "./tools/a"]),
        ("git -C ./sub -c alias.x='!./a' -p x", &["./a"]),
        ("git submodule foreach './a ./data'", &["./a", "./a ./data"]),
        ("git filter-branch --tree-filter ./a -- ./b", &["./a"]),
        ("git grep -O./a x", &["./a"]),
        ("git clone -u ./a b", &["./a"]),
        ("git commit -m run ./data", &[]),
        ("git difftool -yx ./a", &["./a"]),
    ] {
        runs(text, wanted);
    }
    assert_eq!(of("git -c core.hooksPath=./h commit", &[How::Hooks]), ["./h"]);
    assert_eq!(of("git -c include.path=./c commit", &[How::Configuration]), ["./c"]);
}

#[test]
fn interpreters_take_options_before_the_file() {
    for (text, wanted) in [
        ("ruby -rdate tools/a.rb", &["date", "tools/a.rb"][..]),
        ("perl -Mre x.pl", &["x.pl"]),
        ("perl -pi.bak x.pl", &["x.pl"]),
        ("Rscript --vanilla tools/a.R %O", &["tools/a.R"]),
        ("java -Xmx1g -jar tools/a.jar %O %A %B", &["tools/a.jar"]),
        ("pwsh -NoProfile -File tools/a.ps1 x", &["tools/a.ps1"]),
        ("ts-node tools/a.ts ./data", &["tools/a.ts"]),
        ("php -f tools/a.php ./data", &["tools/a.php"]),
        ("$SHELL -c ./a", &["./a"]),
    ] {
        runs(text, wanted);
    }
}

#[test]
fn what_is_told_to_somebody_unknown_may_be_run() {
    for (text, wanted) in [
        ("!foo ./a --with=./b -x", &["./a", "./b"][..]),
        ("!script -c './a ./b' /dev/null", &["./a ./b", "./a", "/dev/null", "/dev/null"]),
        ("!./x ./data", &["./data", "./data"]),
        ("!git mine ./a", &["./a", "./a"]),
        ("!git add src/main.rs; cat ./a | grep -f ./b; eslint --fix src/a.js", &[]),
        ("!$EDITOR docs/a.md; ${VISUAL:-vi} ./b; $(git var GIT_EDITOR) ./c; \"$PAGER\" ./d", &[]),
        ("!pnpm eslint src/a.ts; yarn run prettier --write src/a.js", &[]),
        ("!$TOOL ./a", &["./a", "./a"]),
    ] {
        let found = of(text, &[How::Mention]);
        let once: Vec<_> = found.iter().collect();
        let wanted: Vec<String> = wanted.iter().map(|one| (*one).to_owned()).collect();
        assert!(wanted.iter().all(|one| once.contains(&one)), "{text}: {once:?}");
        assert!(once.iter().all(|one| wanted.contains(one)), "{text}: {once:?}");
    }
    for text in [
        "!$EDITOR TODO.md",
        "!${EDITOR:-vim} TODO.md",
        "!$(git var GIT_EDITOR) C.md",
        "!\"$PAGER\" d/n.txt",
    ] {
        runs(text, &[]);
    }
}

/// Marks, and whatever else can stand in itself, take no more room for being many.
#[test]
fn many_marks_are_one() {
    for marks in [1, 2, 3, 4_000_000] {
        runs(&format!("{}./x ./data", "!".repeat(marks)), &["./x"]);
        runs(&format!("sudo {} ./x", "!".repeat(marks)), &["./x"]);
    }
    for open in
        ["$(", "`", "${a:-", "(", "{ ", "'", "\"", "sh -c '", "<<a\n", "env ", "! ", "eval "]
    {
        let _ = programs(&open.repeat(300_000));
    }
}

/// They show or edit files, and obey one all the same.
#[test]
fn what_shows_a_file_may_obey_another() {
    for (text, wanted) in [
        ("vim -S ./s ./data", &["./s"][..]),
        ("nvim -d -u ./rc ./data", &["./rc"]),
        ("emacs --script ./s", &["./s"]),
        ("emacs -Q -l ./s --load=./t ./data", &["./s", "./t"]),
        ("rg --pre ./p x ./data", &["./p"]),
        ("rg --pre=./p --pre-glob=./g x", &["./p"]),
        ("sort --compress-program=./p ./data", &["./p"]),
        ("awk --file=./p ./data", &["./p"]),
        ("awk -v x=./y -f./p ./data", &["./p"]),
        ("make --file=./m; make -sf ./n; make -C ./d", &["./m", "./n"]),
        ("sed -nf ./p ./data; sed -Enf./q ./data; sed -n ./data", &["./p", "./q"]),
        ("ssh -F ./c host", &["./c"]),
        ("env --split-string='./x y' ./z", &["./x"]),
        ("env -i --split-string './x y'", &["./x"]),
        ("su --command=./x ada", &["./x"]),
        ("flock --command ./x", &["./x"]),
        ("vim ./data; less ./data; sort -u ./data; rg -l x ./data", &[]),
    ] {
        runs(text, wanted);
    }
}

#[test]
fn what_a_shell_is_shown_and_what_a_directory_or_a_setting_stands_for_is_run() {
    runs("$'tools/x' a", &["tools/x"]);
    runs("$\"tools/x\" $'a'", &["tools/x"]);
    runs("cat tools/x | sh", &["tools/x"]);
    runs("sed s/a/b/ ./x | head -n 3 | bash -s", &["s/a/b/", "./x"]);
    runs("cat docs/a.md; echo ls | sh", &[]);
    runs("cat docs/a.md | wc -l", &[]);
    runs("php -d auto_prepend_file=tools/x.php", &["auto_prepend_file=tools/x.php", "tools/x.php"]);
    assert_eq!(of("python3 tools/", &[How::Mention]), ["tools/__main__.py"]);
    assert_eq!(of("node ./tools a", &[How::Mention]), ["./tools/index.js"]);
}
