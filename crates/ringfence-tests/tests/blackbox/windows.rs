//! Programs with windows, on a display without a screen, with exact libraries: what they draw is
//! looked at.

use ringfence_tests::{Person, Place, Running, Tier, left_out};
use rustix::process::Signal;
use std::process::Command;

/// What is drawn.
const GREEN: &str = "srgb(0,160,0)";

/// A display of our own, and who tells when a window is shown on it.
struct Display {
    server: Option<Running>,
    events: Option<Running>,
    name: String,
}

impl Display {
    /// Starts `Xvfb` on a free number, which it tells when it is ready.
    fn start(place: &Place) -> Display {
        let mut command = place.command("Xvfb");
        let screen = ["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp"];
        command.args(screen).args(["-noreset", "-ac"]);
        let mut server = Running::start(command);
        server.printed("\n");
        let name = format!(":{}", server.so_far().trim());
        let mut command = place.command("xev");
        command.env("DISPLAY", &name).args(["-root", "-event", "substructure"]);
        let events = Some(Running::start(command));
        Display { server: Some(server), events, name }
    }

    /// The options with which it is reached, and the environment's.
    fn run(&self, place: &Place, options: &[&str], argv: &[&str]) -> Running {
        let socket = format!("/tmp/.X11-unix/X{}", self.name.trim_start_matches(':'));
        let mut command = place.ringfence_run();
        command.env("DISPLAY", &self.name).args(options);
        command.args(["--libs", "exact", "--allow-socket", &socket, "-e", "DISPLAY", "--"]);
        Running::start({
            command.args(argv);
            command
        })
    }

    /// The colour of the middle of what is at the upper left.
    fn colour(&self) -> String {
        let mut command = Command::new("import");
        command.env("DISPLAY", &self.name);
        command.args(["-window", "root", "-format", "%[pixel:p{100,150}]", "info:"]);
        let output = command.output().expect("import runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        for one in [self.events.take(), self.server.take()].into_iter().flatten() {
            one.signal(Signal::KILL);
            one.finish();
        }
    }
}

fn there(place: &Place, programs: &[&str]) -> bool {
    let missing =
        programs.iter().find(|program| place.shell(&format!("command -v {program}")).code != 0);
    if let Some(missing) = missing {
        left_out("a program with windows", &format!("{missing} is not installed"));
    }
    missing.is_none()
}

#[test]
fn a_plain_window_is_drawn() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let tools = ["Xvfb", "xev", "import"];
    if !there(place, &tools) {
        return;
    }
    let xterm: &[&str] = &["xterm", "-bg", "#00a000", "-geometry", "60x24+0+0", "-e", "sleep 100"];
    let message: &[&str] = &["xmessage", "-bg", "#00a000", "-geometry", "300x200+0+0", "7"];
    for argv in [xterm, message] {
        if !there(place, &argv[..1]) {
            continue;
        }
        let mut display = Display::start(place);
        assert_eq!(display.colour(), "srgb(0,0,0)", "nothing is drawn yet");
        let program = display.run(place, &[], argv);
        if let Some(events) = &mut display.events {
            // The server fills a window with its background when it shows it.
            events.printed("MapNotify");
        }
        assert_eq!(display.colour(), GREEN, "{argv:?}");
        program.signal(Signal::TERM);
        program.finish();
    }
}

#[test]
fn a_browser_draws_a_page() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !there(place, &["Xvfb", "xev", "import", "chromium"]) {
        return;
    }
    // Counts the pictures that it is asked for, for as long as it is looked at.
    let page = "<body style='background:#00a000'><script>
        let count = 0;
        const next = () => {
            if (++count % 20 == 0) console.log('picture' + ' ' + count / 20 + '.');
            requestAnimationFrame(next);
        };
        requestAnimationFrame(next);
        </script>";
    place.file("home/project/page.html", page);
    let display = Display::start(place);
    let browser = "exec chromium --no-sandbox --no-first-run --disable-gpu --enable-logging=stderr \
                   --window-size=600,400 --window-position=0,0 page.html 2>&1";
    let options = ["-p", "chromium", "--network", "none", "--home", "private", "-r", "page.html"];
    let mut program = display.run(place, &options, &["sh", "-c", browser]);
    // What is asked for is on the screen some pictures later.
    let drawn = (1..=100).any(|count| {
        program.printed(&format!("picture {count}."));
        display.colour() == GREEN
    });
    assert!(drawn, "{}", display.colour());
    assert!(
        !program.so_far().contains("error while loading shared libraries"),
        "{}",
        program.so_far()
    );
    program.signal(Signal::TERM);
    program.finish();
}

/// A window all green, that tells each picture that it is asked for, and asks for another one.
const GTK: &str = "
import gi
gi.require_version('Gtk', '3.0')
from gi.repository import Gtk
window = Gtk.Window()
window.set_default_size(400, 300)
style = Gtk.CssProvider()
style.load_from_data(b'window { background: #00a000; }')
window.get_style_context().add_provider(style, Gtk.STYLE_PROVIDER_PRIORITY_APPLICATION)
count = 0
def picture(widget, clock):
    global count
    count += 1
    print('picture %d.' % count, flush=True)
    widget.queue_draw()
    return True
window.add_tick_callback(picture)
window.show_all()
Gtk.main()
";

#[test]
fn a_gtk_program_draws_with_exact_libraries() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !there(place, &["Xvfb", "xev", "import"]) {
        return;
    }
    let check = "import gi; gi.require_version('Gtk', '3.0')";
    if place.shell(&format!("/usr/bin/python3 -c \"{check}\"")).code != 0 {
        return left_out("a GTK program", "python3-gi and gir1.2-gtk-3.0 are not installed");
    }
    place.file("home/project/window.py", GTK);
    let display = Display::start(place);
    assert_eq!(display.colour(), "srgb(0,0,0)", "nothing is drawn yet");
    let options = ["--feature", "gtk"];
    let mut program = display.run(place, &options, &["/usr/bin/python3", "window.py"]);
    let drawn = (1..=100).any(|count| {
        program.printed(&format!("picture {count}."));
        display.colour() == GREEN
    });
    assert!(drawn, "{}", display.colour());
    program.signal(Signal::TERM);
    program.finish();
    // The control: a script that asks for nothing by a constant is shown the bindings, and no more.
    let asks = "import gi; print(1); gi.require_version('G' + 'tk', '3.0')";
    let listed = place.run(&["--libs", "exact"], &["/usr/bin/python3", "-c", asks]);
    listed.ends(1).prints("1").says("Namespace Gtk not available");
}
