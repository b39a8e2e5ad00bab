//! Rules that come while a session lives, and the questions that wait for them.

use super::*;
use crate::rules::tests::policy;

#[test]
fn what_a_rule_denies_is_not_said_to_be_allowed() {
    let denied = ["b.org:83", "*.c.org:*", "10.0.0.0/8:*"];
    let policy = Arc::new(policy(&["a.org"], &denied));
    let control = Control::new(policy, None, Box::new(|_| {}));
    for text in ["b.org:83", "x.c.org", "*.x.c.org:9", "*.c.org", "10.1.0.0/16", "10.1.2.3:9"] {
        let error = control.allow(text).expect_err(text);
        assert!(error.contains("is denied by `"), "{error}");
    }
    for text in ["b.org", "b.org:83,84", "c.org", "*.b.org:83", "11.0.0.1", "10.0.0.0/7"] {
        assert!(control.allow(text).is_ok(), "{text}");
    }
}

#[test]
fn a_name_that_was_refused_is_one_for_the_usual_ports() {
    let control = Control::new(Arc::new(policy(&["a.org"], &[])), None, Box::new(|_| {}));
    let host = Host::parse("b.org").expect("a host");
    let name = control.refused((&host, None), None, "no rule", 0);
    assert!(name.line.contains("\tb.org\t"), "{}", name.line);
    control.answer("session", &name.number.to_string()).expect("allowed");
    for port in [80, 443] {
        assert!(rules::connect(&control.policy(), &host, port, rules::own).allowed, "{port}");
    }
    let place = control.refused((&host, Some(83)), None, "no rule", 0);
    assert!(place.line.contains("\tb.org:83\t"), "{}", place.line);
}

#[test]
fn a_rule_that_comes_between_the_decision_and_the_question_is_the_answer() {
    let patience = Some(Duration::from_secs(1));
    let control = Control::new(Arc::new(policy(&["a.org"], &[])), patience, Box::new(|_| {}));
    let host = Host::parse("b.org").expect("a host");
    let decision = rules::connect(&control.policy(), &host, 443, rules::own);
    assert!(!decision.allowed);
    control.allow("b.org").expect("allowed");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let answer = runtime.expect("a runtime").block_on(control.ask(&host, 443, None, &decision));
    assert_eq!(answer, Some(Answer::Session));
    assert!(control.0.questions.is_empty());
}

/// A rule for other ports of a host denies nothing; one that denies is never asked about, and neither is the host's own
/// loopback.
#[test]
fn what_no_rule_speaks_of_is_asked_about_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let patience = Some(Duration::from_secs(1000));
        let policy = Arc::new(policy(&["b.org", "*:81", "10.1.2.3"], &["c.org:*"]));
        let control = Control::new(policy, patience, Box::new(|_| {}));
        for (text, port, asks) in [
            ("b.org", 8080, true),
            ("d.org", 80, true),
            ("10.1.2.3", 8080, true),
            ("c.org", 443, false),
            ("localhost", 7000, false),
            ("127.0.0.1", 7000, false),
            ("127.0.0.2", 7000, false),
            ("0.0.0.0", 7000, false),
            ("::1", 7000, false),
            ("::", 7000, false),
        ] {
            let host = Host::parse(text).expect(text);
            let decision = rules::connect(&control.policy(), &host, port, |_| false);
            assert!(!decision.allowed, "{text}");
            let question = control.ask(&host, port, None, &decision);
            let answer = tokio::time::timeout(Duration::ZERO, question).await;
            assert_eq!(answer.is_err(), asks, "{text}:{port}: {answer:?}");
            let known = control.0.refused.lock().expect("alone").len();
            let (event, decision) = (Event::Denied(String::new()), Some(decision));
            let way = Way::Connect;
            let (address, process) = (None, None);
            control.hear(&NetDecision {
                id: 1,
                way,
                host,
                port,
                address,
                process,
                event,
                decision,
            });
            // Who watches is told once, by the question or by the refusal.
            let told = control.0.refused.lock().expect("alone").len() - known;
            assert_eq!(told, usize::from(!asks), "{text}:{port}");
        }
    });
}

/// One program that opens many connections asks once; what is answered is answered for all of them.
#[test]
fn a_process_asks_about_a_place_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let (told, asked) = std::sync::mpsc::channel();
        let notice = move |text: &str| told.send(text.to_owned()).expect("heard");
        let patience = Some(Duration::from_secs(1000));
        let control = Control::new(Arc::new(policy(&["a.org"], &[])), patience, Box::new(notice));
        let host = Host::parse("b.org").expect("a host");
        let decision = rules::connect(&control.policy(), &host, 443, rules::own);
        let process = |pid| Process { pid, parent: None, exe: None, argv: Vec::new() };
        let (first, second) = (process(7), process(8));
        let ask = |process, port| control.ask(&host, port, Some(process), &decision);
        let mut all =
            [ask(&first, 443), ask(&first, 443), ask(&second, 443), ask(&first, 83)].map(Box::pin);
        for asks in &mut all {
            let answer = tokio::time::timeout(Duration::ZERO, asks.as_mut()).await;
            assert!(answer.is_err(), "{answer:?}");
        }
        assert_eq!(asked.try_iter().count(), 3);
        control.answer("once", "1").expect("it waits");
        control.answer("once", "1").expect_err("it was answered");
        let [one, two, other, port] = all;
        assert_eq!((one.await, two.await), (Some(Answer::Once), Some(Answer::Once)));
        control.answer("deny", "2").expect("it waits");
        assert_eq!(other.await, Some(Answer::Deny));
        // The program ends.
        drop(port);
        assert!(control.0.questions.is_empty());
    });
}

/// Who asks is not known of each: an answer to one is none to another.
#[test]
fn processes_that_are_not_known_are_not_one() {
    let questions = Questions::default();
    let host = Host::parse("b.org").expect("a host");
    let put = |number, pid| {
        let line = String::new();
        let refused = || Refused { number, host: host.clone(), port: Some(443), line };
        questions.put(&host, 443, pid, Duration::from_secs(1000), refused)
    };
    let (mut first, mut second) = (put(1, None).expect("put"), put(2, None).expect("put"));
    assert_eq!([(first.number, first.new), (second.number, second.new)], [(1, true), (2, true)]);
    questions.take(1).expect("it is open").answer(Answer::Once);
    assert_eq!(first.answered.try_recv(), Ok(Answer::Once));
    assert!(second.answered.try_recv().is_err());
    // The control: one that is known.
    let (third, fourth) = (put(3, Some(7)).expect("put"), put(4, Some(7)).expect("put"));
    assert_eq!([(third.number, third.new), (fourth.number, fourth.new)], [(3, true), (3, false)]);
}

/// A person's terminal may stand still: the questions of others are answered meanwhile.
#[test]
fn nobody_waits_for_who_is_told_of_a_question() {
    let slot = Arc::new(OnceLock::<Control>::new());
    let (told, seen) = (slot.clone(), std::sync::mpsc::channel());
    let open = move |_: &str| {
        let control = told.get().expect("set below");
        // It would wait for itself.
        seen.0.send(control.0.questions.is_free()).expect("heard");
    };
    let patience = Some(Duration::from_secs(1000));
    let control = Control::new(Arc::new(policy(&["a.org"], &[])), patience, Box::new(open));
    assert!(slot.set(control.clone()).is_ok());
    let host = Host::parse("b.org").expect("a host");
    let decision = rules::connect(&control.policy(), &host, 443, rules::own);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let mut asks = Box::pin(control.ask(&host, 443, None, &decision));
        let answer = tokio::time::timeout(Duration::ZERO, asks.as_mut()).await;
        assert!(answer.is_err(), "{answer:?}");
    });
    assert_eq!(seen.1.try_iter().collect::<Vec<_>>(), [true]);
}
