//! Requests looked at: what programs see of it, what servers see of it, and what nobody may see.

mod bodies;
pub mod clients;
mod expected;
mod methods;
mod models;
mod odd;
mod refusing;
mod rules;
pub mod server;

use ringfence_tests::{Finished, Place, Running};
use server::Server;

/// The credential of these tests.
const SECRET: &str = "s3cret-credential-0123456789";

/// `ringfence run OPTIONS -- ARGV`, by a caller who trusts the server and has the credential in
/// `TOKEN`.
fn run(place: &Place, server: &Server, options: &[&str], argv: &[&str]) -> Finished {
    let authority = place.file("authority.pem", &server.authority);
    let mut command = place.ringfence_run();
    command.env("SSL_CERT_FILE", authority).env("TOKEN", SECRET);
    command.args(options).arg("--").args(argv);
    Running::start(command).finish()
}

/// The same for a shell's script, in which `$U` is where the server is.
fn script(place: &Place, server: &Server, options: &[&str], script: &str) -> Finished {
    let text = format!("U=https://localhost:{}; {script}", server.port);
    run(place, server, options, &["bash", "-c", &text])
}

/// An `--http` rule for the server.
fn rule(server: &Server, methods: &str, path: &str) -> String {
    format!("{methods} localhost:{}{path}", server.port)
}

/// An `--inject` rule for the server.
fn inject(server: &Server, header: &str) -> String {
    format!("localhost:{} {header}", server.port)
}

/// A grant for the server.
fn host(server: &Server) -> String {
    format!("localhost:{}", server.port)
}
