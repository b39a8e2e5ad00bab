//! The other end of the rules' socket.

use ringfence_sys::{Result, describe, fd, unix};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A connection to a session.
#[derive(Debug)]
pub struct Client(OwnedFd);

/// What a session says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The answer to what was said to it.
    Answer(std::result::Result<String, String>),
    /// Something was refused, or waits for an answer.
    Refused {
        /// By which it is answered.
        number: u64,
        /// So many seconds; 0: it was refused.
        waits: u64,
        /// Host and port.
        place: String,
        /// Who asked; empty when that is not known.
        process: String,
        /// Why.
        why: String,
    },
    /// What became of one that waited.
    Settled {
        /// Which.
        number: u64,
        /// In words.
        text: String,
    },
}

impl Client {
    /// Connects to the socket of a session.
    ///
    /// # Errors
    /// `ENOENT`: it has no network filter; `ECONNREFUSED`: it has ended.
    pub fn connect(path: &Path) -> Result<Client> {
        unix::connect(path).map(Client)
    }

    /// Says something.
    ///
    /// # Errors
    /// A sentence.
    pub fn say(&self, words: &[&str]) -> std::result::Result<(), String> {
        let sent = fd::send(self.0.as_fd(), words.join("\t").as_bytes());
        sent.map(drop).map_err(|errno| format!("the session does not listen: {}", describe(errno)))
    }

    /// Says something and waits for the answer.
    ///
    /// # Errors
    /// A sentence, its own or the session's.
    pub fn call(&self, words: &[&str]) -> std::result::Result<String, String> {
        self.say(words)?;
        while let Some(said) = self.hear(true) {
            if let Said::Answer(answer) = said {
                return answer;
            }
        }
        Err("the session has ended".to_owned())
    }

    /// What it says next; nothing when it has ended, or, without `wait`, says nothing now.
    pub fn hear(&self, wait: bool) -> Option<Said> {
        let mut buffer = [0; super::LONGEST];
        let count =
            fd::receive(self.0.as_fd(), &mut buffer, wait).ok().filter(|&count| count > 0)?;
        said(&String::from_utf8_lossy(&buffer[..count]))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn said(line: &str) -> Option<Said> {
    let words: Vec<&str> = line.split('\t').collect();
    Some(match words[..] {
        ["ok", text] => Said::Answer(Ok(text.to_owned())),
        ["error", text] => Said::Answer(Err(text.to_owned())),
        ["refused", number, waits, place, process, why] => Said::Refused {
            number: number.parse().ok()?,
            waits: waits.parse().ok()?,
            place: place.to_owned(),
            process: process.to_owned(),
            why: why.to_owned(),
        },
        ["settled", number, text] => {
            Said::Settled { number: number.parse().ok()?, text: text.to_owned() }
        }
        _ => Said::Answer(Err("the session says what this ringfence does not know".to_owned())),
    })
}
