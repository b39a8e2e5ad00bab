//! Methods: which are which, and which a rule can name.

use super::{Server, rule, script};
use ringfence_tests::{Tier, everybody};

/// RFC 9110 §9.1: a server may do for `get` what it does for none that is allowed.
#[test]
fn a_method_in_another_case_is_another_method() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let get = rule(&server, "get,post", "/echo/*");
        let status = "curl -sS -o /dev/null -w '%{http_code}\\n'";
        let asked = format!(
            "for v in --http1.1 --http2; do
             {status} $v -X GET $U/echo/a; {status} $v -X get $U/echo/a; {status} $v -X Get $U/echo/a; done
             curl -sS -X POST -d x -H 'X-HTTP-Method-Override: get' $U/echo/a | grep -i override
             curl -sS -X get $U/echo/a"
        );
        let seen = script(place, &server, &["--http", &get], &asked).well();
        let (statuses, rest) = seen.split_at(24);
        assert_eq!(statuses, "200\n403\n403\n200\n403\n403\n");
        let sentence = "ringfence: methods are case-sensitive, and rules name them in capitals: `get` is another method \
                        than GET";
        assert_eq!(rest, format!("x-http-method-override: GET\n{sentence}"));
        let url = format!("https://localhost:{}/echo/a", server.port);
        for (method, code) in [("GET", 0), ("get", 1), ("Get", 1)] {
            place.ringfence(["why", "--http", &get, "--", "http", method, &url]).ends(code);
        }
    });
}

#[test]
fn what_is_said_to_allow_a_method_is_taken_by_a_shell() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        let url = format!("https://localhost:{}/echo/a", server.port);
        for method in ["VERSION-CONTROL", "M-SEARCH", "IT'S!"] {
            let quoted = method.replace('\'', r"'\''");
            let asked = format!("curl -sS -X '{quoted}' $U/echo/a");
            let said = script(place, &server, &["--http", &get], &asked).well();
            let grant = said.split_once("to allow it: ").expect(&said).1;
            let why = format!("${{RF%% *}} why {grant} -- http '{quoted}' {url}");
            place.shell(&why).ends(0).prints("allowed");
            let option = grant.strip_prefix("--http '").and_then(|rest| rest.strip_suffix('\''));
            let option = option.expect(grant).replace(r"'\''", "'");
            let served = script(place, &server, &["--http", &option], &asked).well();
            assert!(served.starts_with(&format!("{method} /echo/a")), "{served}");
        }
        // A pattern within one is none.
        let odd = script(place, &server, &["--http", &get], "curl -sS -X 'GE*' $U/echo/a").well();
        assert!(odd.contains("not GE* ") && !odd.contains("to allow it"), "{odd}");
        let wrong = ["why", "--http", "GE* localhost:1/", "--", "http", "GET", &url];
        place.ringfence(wrong).ends(125).says("`GE*` is no method");
    });
}
