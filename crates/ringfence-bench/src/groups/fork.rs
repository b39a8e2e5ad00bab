//! Group `fork`: clones of a warm template, beside plain forks of the same process.

use super::{Entry, Outcome, Stop};
use crate::background::Background;
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::model::Group;
use std::time::Duration;

pub const ENTRY: Entry = Entry {
    name: "fork",
    summary: "1,000 clones of a warm process in a session, beside plain forks of it",
    method: "A Python process that holds 32 MiB of its own forks children that end at once, and waits for \
             them all. `plain`: it forks by itself, outside, and tells the time. `fork`: it is the template \
             of a session, and a whole `ringfence fork` is timed, its process and the way there included. \
             That each clone has every layer is asserted by the tests.",
    seconds: (30.0, 8.0),
    run,
};

/// Both processes: they differ in who tells them to fork.
const PROGRAM: &str = r#"
import gc, os, sys, time
warm = bytearray(b"w" * (32 << 20))
if len(sys.argv) > 1:
    import ringfence_template
    print("ready", flush=True)
    ringfence_template.serve(lambda index, words: 0)
    sys.exit()
gc.collect()
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    for _ in range(int(line)):
        if os.fork() == 0:
            os._exit(0)
    for _ in range(int(line)):
        os.wait()
    print(time.perf_counter() - began, flush=True)
"#;

/// The session's name.
const NAME: &str = "bench-fork";

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.has("fork").map_err(Stop::Unavailable)?;
    let python = super::need("python3")?.to_string_lossy().into_owned();
    let clones = if bench.options.quick { 200 } else { 1000 };
    let dir = bench.work.fresh("fork")?;
    let helper = bench.product(&["fork", "--helper", "python"])?;
    let helper = bench.run(&helper, true)?.stdout;
    crate::work::write(&dir.join("ringfence_template.py"), &helper)?;
    let program = dir.join("warm.py");
    crate::work::write(&program, PROGRAM.as_bytes())?;
    let program = program.to_string_lossy().into_owned();
    let plain = bench.plain(&[(&python).into(), (&program).into()])?;
    let mut plain = Background::start(bench, &plain)?;
    ready(&mut plain)?;
    let options = ["run", "--gateway", "--name", NAME, "--", &python, &program, "template"];
    let session = bench.product_in(&dir, &options)?;
    let mut session = Background::start(bench, &session)?;
    ready(&mut session)?;
    let fork = bench.product(&["fork", NAME, &clones.to_string()])?;
    let end = bench.product(&["kill", NAME])?;
    bench.progress.workloads(1);
    let trials = vec![
        Trial::new("plain", "", move |_| {
            plain.send(&clones.to_string())?;
            let said = plain.line()?;
            let seconds = said.parse().map_err(|_| error!("it said {said:?}"))?;
            Ok(vec![Reading::millis("wall", Duration::from_secs_f64(seconds))])
        }),
        Trial::new("fork", "plain", move |bench| {
            Ok(vec![Reading::millis("wall", bench.run(&fork, false)?.wall)])
        }),
    ];
    let rounds = Rounds { fewest: 5, most: 40, ..Rounds::short(bench) };
    interleave(bench, group, &format!("{clones} clones"), trials, rounds);
    bench.run(&end, false)?;
    drop(session);
    Ok(())
}

fn ready(process: &mut Background) -> Result<()> {
    match process.line()?.as_str() {
        "ready" => Ok(()),
        said => Err(error!("it said {said:?} instead of being ready")),
    }
}
