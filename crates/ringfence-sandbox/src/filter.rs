//! Compiles the plan's call rules to a seccomp filter.
//!
//! The kernel translates each instruction to machine code at every installation, which takes most of its time, and goes
//! through the program once for each call number there is, to find those that are allowed whatever their arguments
//! (its allow-bitmap, Linux 5.11): these never run the filter at all. So the program is short first (what is alike is there
//! once: [`decisions`]), and then the way to what most numbers have in common is.

mod decisions;
mod layout;

use crate::plan::{AllowedCalls, CallRule, Test, Verdict};
use decisions::{Compare, Decisions, Place, Step};
use foldhash::fast::RandomState;
use ringfence_sys::Sysno;
use ringfence_sys::seccomp::{AUDIT_ARCH, Instruction, Program};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Offset of the low half of an argument (all supported machines are little-endian).
fn argument(index: u8) -> u32 {
    16 + 8 * u32::from(index)
}

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIF: u32 = 0x7FC0_0000;

/// The first number that nobody here knows: calls of later kernels, of which no rule could speak, and
/// on x86-64 those of the x32 ABI, which carry 0x40000000 and would reach other entry points.
fn first_unknown() -> u32 {
    Sysno::last().id() as u32 + 1
}

fn action(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Supervise | Verdict::Observe | Verdict::Ask => return USER_NOTIF,
        Verdict::Kill => return KILL_PROCESS,
        _ => {}
    }
    ERRNO
        | match verdict {
            Verdict::Refuse => 1,              // EPERM
            Verdict::NotImplemented => 38,     // ENOSYS
            Verdict::FamilyNotSupported => 97, // EAFNOSUPPORT
            Verdict::AccessDenied => 13,       // EACCES
            Verdict::Supervise | Verdict::Observe | Verdict::Ask | Verdict::Kill => 0,
        }
}

/// Compiles the rules; calls without a rule are allowed, or only those on a list.
///
/// A wrong architecture kills the process; a number past all known calls is refused with `ENOSYS`, as by
/// a kernel that does not have it.
pub fn compile(rules: &[CallRule], allowed: Option<&AllowedCalls>) -> Program {
    let mut by_number: BTreeMap<u32, Vec<&CallRule>> = BTreeMap::new();
    for rule in rules {
        if let Ok(number) = rule.call.parse::<Sysno>() {
            by_number.entry(number.id() as u32).or_default().push(rule);
        }
    }
    let otherwise = allowed.map_or(ALLOW, |allowed| action(allowed.otherwise));
    let mut listed: BTreeSet<u32> = BTreeSet::new();
    for name in allowed.iter().flat_map(|allowed| &allowed.calls) {
        if let Ok(number) = name.parse::<Sysno>() {
            by_number.entry(number.id() as u32).or_default();
            listed.insert(number.id() as u32);
        }
    }
    let mut decisions = Decisions::default();
    let others = decisions.give(otherwise);
    let mut lots = vec![Lot { first: 0, place: others }];
    for (number, rules) in by_number {
        let rest = if listed.contains(&number) { ALLOW } else { otherwise };
        let place = OneCall::new(&mut decisions, &rules, rest).decide();
        lots.retain(|lot| lot.first < number);
        lots.extend([Lot { first: number, place }, Lot { first: number + 1, place: others }]);
    }
    let unknown = decisions.give(action(Verdict::NotImplemented));
    lots.retain(|lot| lot.first < first_unknown());
    lots.push(Lot { first: first_unknown(), place: unknown });
    lots.dedup_by_key(|lot| lot.place);
    let found = search(&mut decisions, &lots, u32::MAX);
    let number = decisions.step(Step::Load(NUMBER, found));
    let kill = decisions.give(KILL_PROCESS);
    let ours = decisions.step(Step::If(Compare::Equal(AUDIT_ARCH), number, kill));
    let first = decisions.step(Step::Load(ARCHITECTURE, ours));
    Program(layout::lay_out(&decisions, first))
}

/// What a rule does with a call whose lot is `rest` without it: what is not allowed at all is not
/// supervised either.
fn ruled(rule: &CallRule, rest: u32) -> u32 {
    if told(rule) && rest != ALLOW { rest } else { action(rule.verdict) }
}

/// Whether the launcher is told of a call.
pub fn told(rule: &CallRule) -> bool {
    matches!(rule.verdict, Verdict::Supervise | Verdict::Observe)
}

/// Where in a program, in bytes, a number stands that an argument is compared with.
pub fn comparisons(program: &Program, number: u32) -> impl Iterator<Item = usize> {
    const OPERAND: usize = 4;
    let is = move |one: &Instruction| one.code == layout::JUMP_EQUAL && one.operand == number;
    let places = program.0.iter().enumerate().filter(move |(_, one)| is(one));
    places.map(|(at, _)| at * size_of::<Instruction>() + OPERAND)
}

/// What becomes of the calls from a number on, up to the next such number.
#[derive(Clone, Copy)]
struct Lot {
    first: u32,
    place: Place,
}

/// At most so many numbers are compared with one after the other.
const IN_A_ROW: usize = 4;

/// Has the lot found of a number that is loaded and below `end`: by a binary search, down to few numbers that differ from
/// those around them.
fn search(decisions: &mut Decisions, lots: &[Lot], end: u32) -> Place {
    if let [lot] = lots {
        return lot.place;
    }
    if let Some(place) = in_a_row(decisions, lots, end) {
        return place;
    }
    let (low, high) = lots.split_at(middle(lots));
    let (below, above) = (search(decisions, low, high[0].first), search(decisions, high, end));
    decisions.step(Step::If(Compare::AtLeast(high[0].first), above, below))
}

/// Compares with each number that differs from the rest; nothing where these are too many, or more than numbers.
fn in_a_row(decisions: &mut Decisions, lots: &[Lot], end: u32) -> Option<Place> {
    let single = |at: usize| {
        let next = lots.get(at + 1).map_or(end, |next| next.first);
        next - lots[at].first == 1
    };
    // The rest is around the first number, or behind it.
    let rest = lots.iter().take(2).map(|lot| lot.place).find(|rest| {
        let differ = || (0..lots.len()).filter(|at| lots[*at].place != *rest);
        differ().count() <= IN_A_ROW && differ().all(single)
    })?;
    let differ = lots.iter().rev().filter(|lot| lot.place != rest);
    Some(differ.fold(rest, |rest, lot| {
        decisions.step(Step::If(Compare::Equal(lot.first), lot.place, rest))
    }))
}

/// Where lots are parted: as many numbers below as above, where each lot counts for some more.
fn middle(lots: &[Lot]) -> usize {
    const EACH: usize = 8;
    let weight = |at: usize| (lots[at].first - lots[0].first) as usize + EACH * at;
    let whole = weight(lots.len() - 1) + EACH;
    (1..lots.len()).min_by_key(|at| (2 * weight(*at)).abs_diff(whole)).unwrap_or(1)
}

/// What the accumulator holds of a call's arguments: the number of one, and the mask that was applied.
type Held = Option<(u8, Option<u32>)>;

/// The decision about one call: each rule in turn, then what becomes of the rest.
struct OneCall<'a> {
    decisions: &'a mut Decisions,
    rules: &'a [&'a CallRule],
    rest: u32,
    /// What was made of the rules from one on, by what is held there.
    known: HashMap<(usize, Held), Place, RandomState>,
}

impl<'a> OneCall<'a> {
    fn new(decisions: &'a mut Decisions, rules: &'a [&'a CallRule], rest: u32) -> OneCall<'a> {
        OneCall { decisions, rules, rest, known: HashMap::default() }
    }

    fn decide(mut self) -> Place {
        self.from(0, None)
    }

    fn from(&mut self, rule: usize, held: Held) -> Place {
        let Some(one) = self.rules.get(rule) else { return self.decisions.give(self.rest) };
        if let Some(place) = self.known.get(&(rule, held)) {
            return *place;
        }
        let place = self.tests(rule, &one.tests, held);
        self.known.insert((rule, held), place);
        place
    }

    /// The tests of a rule that are left: it holds when all do.
    fn tests(&mut self, rule: usize, left: &[(u8, Test)], held: Held) -> Place {
        let [(index, test), left @ ..] = left else {
            return self.decisions.give(ruled(self.rules[rule], self.rest));
        };
        let (mask, compare, wanted) = match *test {
            Test::Equals(value) => (None, Compare::Equal(value), true),
            Test::Masked(mask, value) => (Some(mask), Compare::Equal(value), true),
            Test::Differs(value) => (None, Compare::Equal(value), false),
            Test::MaskDiffers(mask, value) => (Some(mask), Compare::Equal(value), false),
            Test::AnyBit(mask) => (None, Compare::AnyBit(mask), true),
        };
        let holds = Some((*index, mask));
        let passed = self.tests(rule, left, holds);
        let failed = self.from(rule + 1, holds);
        let (yes, no) = if wanted { (passed, failed) } else { (failed, passed) };
        let mut place = self.decisions.step(Step::If(compare, yes, no));
        if held == holds {
            return place;
        }
        if let Some(mask) = mask {
            place = self.decisions.step(Step::And(mask, place));
            if held == Some((*index, None)) {
                return place;
            }
        }
        self.decisions.step(Step::Load(argument(*index), place))
    }
}

#[cfg(test)]
mod tests {
    use super::layout::*;
    use super::*;
    use proptest::prelude::*;

    /// What the kernel does with the program, for one call.
    fn run(program: &Program, arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let instruction = program.0[at];
            let jump = |taken| {
                usize::from(if taken { instruction.jump_true } else { instruction.jump_false })
            };
            at += 1;
            match instruction.code {
                LOAD_WORD => {
                    accumulator = match instruction.operand {
                        NUMBER => number,
                        ARCHITECTURE => arch,
                        offset => arguments[(offset as usize - 16) / 8] as u32,
                    }
                }
                AND => accumulator &= instruction.operand,
                JUMP => at += instruction.operand as usize,
                JUMP_EQUAL => at += jump(accumulator == instruction.operand),
                JUMP_GREATER_OR_EQUAL => at += jump(accumulator >= instruction.operand),
                JUMP_ANY_BIT => at += jump(accumulator & instruction.operand != 0),
                RETURN => return instruction.operand,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    fn rule(call: &'static str, tests: &[(u8, Test)]) -> CallRule {
        CallRule { call, verdict: Verdict::Refuse, tests: tests.to_vec(), reason: "test" }
    }

    fn number(call: &str) -> u32 {
        call.parse::<Sysno>().expect("a call of this machine").id() as u32
    }

    #[test]
    fn another_architecture_is_killed_and_calls_that_nobody_knows_are_not_there() {
        let known = number("file_setattr");
        for program in [compile(&[], None), compile(&[rule("ioctl", &[])], None)] {
            assert_eq!(run(&program, AUDIT_ARCH, 1, [0; 6]), ALLOW);
            assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), KILL_PROCESS);
            assert_eq!(run(&program, AUDIT_ARCH, known, [0; 6]), ALLOW);
            for unknown in [known + 1, 600, 0x4000_0001, u32::MAX] {
                assert_eq!(run(&program, AUDIT_ARCH, unknown, [0; 6]), ERRNO | 38, "{unknown}");
            }
        }
    }

    #[test]
    fn the_numbers_of_the_sessions_own_call_are_where_they_are_said_to_be() {
        let mut plan = [(3, Test::Differs(0x1111)), (4, Test::Differs(0x2222))]
            .map(|test| CallRule { verdict: Verdict::Observe, ..rule("execve", &[test]) })
            .to_vec();
        plan.extend((0..40).map(|_| rule("ioctl", &[(1, Test::Equals(0x3333))])));
        let mut program = compile(&plan, None);
        for (number, known) in [(0x1111, 7), (0x2222, 8)] {
            let places: Vec<usize> = comparisons(&program, number).collect();
            assert_eq!(places.len(), 1);
            program.0[places[0] / 8].operand = known;
        }
        let with = |a, b| run(&program, AUDIT_ARCH, number("execve"), [0, 0, 0, a, b, 0]);
        assert_eq!(with(7, 8), ALLOW);
        for (a, b) in [(7, 0), (0, 8), (8, 7), (0x1111, 0x2222), (0, 0)] {
            assert_eq!(with(a, b), USER_NOTIF, "{a} {b}");
        }
    }

    #[test]
    fn the_upper_half_of_an_argument_changes_nothing() {
        let program = compile(&[rule("ioctl", &[(1, Test::Equals(0x5412))])], None);
        let with = |request| run(&program, AUDIT_ARCH, number("ioctl"), [0, request, 0, 0, 0, 0]);
        assert_eq!(with(0x5412), ERRNO | 1);
        assert_eq!(with(0xFFFF_FFFF_0000_5412), ERRNO | 1);
        assert_eq!(with(0x5413), ALLOW);
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let both = [(0, Test::Equals(16)), (2, Test::Differs(0))];
        let program = compile(&[rule("socket", &both)], None);
        let with = |a, c| run(&program, AUDIT_ARCH, number("socket"), [a, 3, c, 0, 0, 0]);
        assert_eq!(with(16, 9), ERRNO | 1);
        assert_eq!(with(16, 0), ALLOW);
        assert_eq!(with(2, 9), ALLOW);
    }

    #[test]
    fn what_is_not_listed_is_not_supervised_either() {
        let supervised = CallRule { verdict: Verdict::Supervise, ..rule("connect", &[]) };
        let list = |calls: &[&str]| AllowedCalls {
            calls: calls.iter().map(|call| (*call).to_owned()).collect(),
            otherwise: Verdict::Refuse,
        };
        let with = |list: &AllowedCalls| {
            let program = compile(std::slice::from_ref(&supervised), Some(list));
            run(&program, AUDIT_ARCH, number("connect"), [0; 6])
        };
        assert_eq!(with(&list(&["connect", "no_such_call"])), USER_NOTIF);
        assert_eq!(with(&list(&["read"])), ERRNO | 1);
    }

    proptest! {
        /// The compiled search agrees with reading the rules one by one, for every number.
        #[test]
        fn compiled_and_read_agree(picked in proptest::collection::vec((0u32..460, 0u8..6, any::<u32>()), 0..120),
                                   listed in proptest::option::of(proptest::collection::btree_set(0u32..460, 0..200)),
                                   argument in any::<u32>()) {
            let rules: Vec<CallRule> = picked.iter().filter_map(|&(number, test, value)| {
                let call = Sysno::new(number as usize)?.name();
                let test = match test {
                    0 => vec![],
                    1 => vec![(0, Test::Equals(value))],
                    2 => vec![(0, Test::Differs(value))],
                    3 => vec![(0, Test::AnyBit(value))],
                    4 => vec![(0, Test::Masked(0xFF, value & 0xFF))],
                    _ => vec![(0, Test::MaskDiffers(0xFF, value & 0xFF)), (0, Test::Differs(value))],
                };
                Some(rule(call, &test))
            }).collect();
            let names = |numbers: &BTreeSet<u32>| {
                let calls = numbers.iter().filter_map(|&number| Sysno::new(number as usize));
                calls.map(|call| call.name().to_owned()).collect()
            };
            let allowed = listed.as_ref().map(|listed| AllowedCalls { calls: names(listed), otherwise: Verdict::Kill });
            let program = compile(&rules, allowed.as_ref());
            for number in 0..first_unknown() {
                let holds = |rule: &&CallRule| rule.call.parse::<Sysno>().is_ok_and(|call| call.id() as u32 == number)
                    && rule.tests.iter().all(|&(_, test)| match test {
                        Test::Equals(value) => argument == value,
                        Test::Differs(value) => argument != value,
                        Test::AnyBit(mask) => argument & mask != 0,
                        Test::Masked(mask, value) => argument & mask == value,
                        Test::MaskDiffers(mask, value) => argument & mask != value,
                    });
                let known = Sysno::new(number as usize).is_some();
                let on_list = listed.as_ref().is_none_or(|listed| known && listed.contains(&number));
                let rest = if on_list { ALLOW } else { KILL_PROCESS };
                let expected = if rules.iter().any(|rule| holds(&rule)) { ERRNO | 1 } else { rest };
                prop_assert_eq!(run(&program, AUDIT_ARCH, number, [u64::from(argument), 0, 0, 0, 0, 0]), expected);
            }
        }
    }
}
