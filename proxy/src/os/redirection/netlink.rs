//! Sends the ruleset to the kernel and reads it back: nfnetlink batches (`linux/netfilter/nfnetlink.h`).
//!
//! A batch is a transaction: it takes effect as a whole, or fails with the first error. The kernel processes a batch
//! within `send`, so that its answers are available when `send` returns.

use std::io::{self, Read};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::attributes::{Attributes, NESTED};
use super::ruleset::{Chain, Hook, PRIORITY, Rule, Ruleset, TABLE};
use super::{InitError, expression};

/// Timeout for the kernel's answers, which are normally available immediately.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of a datagram that the kernel sends to a reader of dumps.
const RECEIVE: usize = 32 * 1024;
/// Sizes of `struct nlmsghdr` and of `struct nfgenmsg`, which follows the former in every message used here.
const HEADER: usize = 16;
const GENERIC: usize = 4;

/// `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
const SUBSYSTEM: u16 = 10;
// `enum nf_tables_msg_types`.
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
// Attributes of tables, chains, hooks and rules.
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USER_DATA: u16 = 7;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;
/// Type of a comment in a rule's user data (libnftnl's `NFTNL_UDATA_RULE_COMMENT`).
const COMMENT: u8 = 0;

/// A socket to nfnetlink.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A batch under construction, with a description of each of its messages.
struct Batch {
    bytes: Vec<u8>,
    first: u32,
    subjects: Vec<String>,
}

impl Batch {
    fn new(first: u32) -> Self {
        let mut this = Self {
            bytes: Vec::new(),
            first,
            subjects: Vec::new(),
        };
        let begin = libc::NFNL_MSG_BATCH_BEGIN;
        this.push_raw(
            begin.unsigned_abs() as u16,
            0,
            0,
            SUBSYSTEM,
            &Attributes::default(),
        );
        this.subjects.push("the beginning of the batch".into());
        this
    }

    fn push(&mut self, kind: u16, flags: i32, subject: String, attributes: &Attributes) {
        self.push_raw(SUBSYSTEM << 8 | kind, flags, INET, 0, attributes);
        self.subjects.push(subject);
    }

    fn push_raw(
        &mut self,
        kind: u16,
        flags: i32,
        family: u8,
        resource: u16,
        attributes: &Attributes,
    ) {
        let sequence = self.first + u32::try_from(self.subjects.len()).unwrap_or(0);
        let message = message(kind, flags, sequence, family, resource, attributes);
        self.bytes.extend(message);
    }

    /// Deletes the table, whether or not it exists.
    fn delete_table(&mut self, ask_for_answer: bool) {
        let table = &named(TABLE_NAME);
        self.push(NEW_TABLE, libc::NLM_F_CREATE, "the table".into(), table);
        let answer = if ask_for_answer { libc::NLM_F_ACK } else { 0 };
        self.push(
            DELETE_TABLE,
            answer,
            "the removal of the table".into(),
            table,
        );
    }

    fn chain(&mut self, chain: &Chain) {
        let mut attributes = named(CHAIN_TABLE);
        attributes.text(CHAIN_NAME, chain.name);
        attributes.nested(CHAIN_HOOK, |hook| {
            hook.number(
                HOOK_NUMBER,
                match chain.hook {
                    Hook::Output => 3,
                    Hook::Prerouting => 0,
                },
            );
            hook.number(HOOK_PRIORITY, PRIORITY.cast_unsigned());
        });
        attributes.number(CHAIN_POLICY, ACCEPT);
        attributes.text(CHAIN_TYPE, "nat");
        let subject = format!("the chain `{}` (`{}`)", chain.name, chain.hook);
        self.push(NEW_CHAIN, libc::NLM_F_CREATE, subject, &attributes);
    }

    fn rule(&mut self, chain: &Chain, rule: &Rule, ask_for_answer: bool) {
        let mut attributes = named(RULE_TABLE);
        attributes.text(RULE_CHAIN, chain.name);
        attributes.nested(RULE_EXPRESSIONS, |to| expression::rule(to, rule));
        let comment = [rule.comment.as_bytes(), b"\0"].concat();
        let length = u8::try_from(comment.len()).unwrap_or(u8::MAX);
        let user_data = [&[COMMENT, length], &comment[..]].concat();
        attributes.bytes(RULE_USER_DATA, &user_data);
        let answer = if ask_for_answer { libc::NLM_F_ACK } else { 0 };
        let flags = libc::NLM_F_CREATE | libc::NLM_F_APPEND | answer;
        self.push(NEW_RULE, flags, format!("the rule `{rule}`"), &attributes);
    }

    fn finish(mut self) -> Self {
        let end = libc::NFNL_MSG_BATCH_END;
        self.push_raw(
            end.unsigned_abs() as u16,
            0,
            0,
            SUBSYSTEM,
            &Attributes::default(),
        );
        self
    }
}

fn named(kind: u16) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.text(kind, TABLE);
    attributes
}

fn message(
    kind: u16,
    flags: i32,
    sequence: u32,
    family: u8,
    resource: u16,
    attributes: &Attributes,
) -> Vec<u8> {
    let length = HEADER + GENERIC + attributes.0.len();
    let flags = u16::try_from(libc::NLM_F_REQUEST | flags).unwrap_or(0);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // Port of the sender; the kernel sets it.
    bytes.extend([0; 4]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(&attributes.0);
    bytes
}

impl Netlink {
    /// Opens the socket, which needs no privilege.
    pub(super) fn open() -> Result<Self, InitError> {
        let domain = Domain::from(libc::AF_NETLINK);
        let protocol = Protocol::from(libc::NETLINK_NETFILTER);
        let socket = match Socket::new(domain, Type::RAW, Some(protocol)) {
            Err(error) if is(&error, &[libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT]) => {
                return Err(InitError::NoNfTables);
            }
            Err(error) if is(&error, &[libc::EPERM, libc::EACCES]) => {
                return Err(InitError::NotPermitted);
            }
            socket => socket?,
        };
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            sequence: 1,
        })
    }

    /// Replaces the table with one that has these chains.
    pub(super) fn replace(&mut self, ruleset: &Ruleset) -> Result<(), InitError> {
        let mut batch = Batch::new(self.sequence);
        batch.delete_table(false);
        batch.push(
            NEW_TABLE,
            libc::NLM_F_CREATE,
            "the table".into(),
            &named(TABLE_NAME),
        );
        let last = ruleset.chains.len().saturating_sub(1);
        for (i, chain) in ruleset.chains.iter().enumerate() {
            batch.chain(chain);
            let end = chain.rules.len().saturating_sub(1);
            for (j, rule) in chain.rules.iter().enumerate() {
                batch.rule(chain, rule, i == last && j == end);
            }
        }
        self.transact(&batch.finish())
    }

    /// Deletes the table.
    pub(super) fn delete(&mut self) -> Result<(), InitError> {
        let mut batch = Batch::new(self.sequence);
        batch.delete_table(true);
        self.transact(&batch.finish())
    }

    /// Sends a batch and reads until its acknowledgement or an error.
    fn transact(&mut self, batch: &Batch) -> Result<(), InitError> {
        self.sequence = batch.first + u32::try_from(batch.subjects.len()).unwrap_or(0) + 1;
        self.socket.send(&batch.bytes)?;
        let mut outcome = None;
        while outcome.is_none() {
            self.receive(|answer| {
                if let Answer::Status { sequence, error } = answer {
                    let subject = usize::try_from(sequence.wrapping_sub(batch.first));
                    let subject = subject.ok().and_then(|at| batch.subjects.get(at));
                    outcome.get_or_insert((error, subject.cloned()));
                }
            })?;
        }
        match outcome {
            None | Some((None, _)) => Ok(()),
            Some((Some(source), _)) if is(&source, &[libc::EPERM]) => Err(InitError::NotPermitted),
            Some((Some(source), _)) if is(&source, &[libc::EOPNOTSUPP, libc::EPROTONOSUPPORT]) => {
                Err(InitError::NoNfTables)
            }
            Some((Some(source), subject)) => Err(InitError::Refused {
                what: subject.unwrap_or_default(),
                source,
            }),
        }
    }

    /// Returns chain and comment of each rule of the table, in order.
    pub(super) fn comments(&mut self) -> Result<Vec<(String, String)>, InitError> {
        let kind = SUBSYSTEM << 8 | GET_RULE;
        let flags = libc::NLM_F_DUMP;
        let request = message(kind, flags, self.sequence, INET, 0, &named(RULE_TABLE));
        self.sequence += 1;
        self.socket.send(&request)?;
        let (mut found, mut over) = (Vec::new(), None);
        while over.is_none() {
            self.receive(|answer| match answer {
                Answer::Done => over = Some(None),
                Answer::Rule {
                    table,
                    chain,
                    comment,
                } if table == TABLE => {
                    found.push((chain.to_owned(), comment.to_owned()));
                }
                Answer::Rule { .. } => {}
                Answer::Status { error, .. } => over = Some(error),
            })?;
        }
        match over.flatten() {
            None => Ok(found),
            Some(source) if is(&source, &[libc::EPERM]) => Err(InitError::NotPermitted),
            Some(source) => Err(InitError::Refused {
                what: "to list the rules".into(),
                source,
            }),
        }
    }

    /// Reads one datagram, which may contain several answers.
    fn receive(&self, mut each: impl FnMut(Answer<'_>)) -> Result<(), InitError> {
        let mut buffer = vec![0; RECEIVE];
        let n = loop {
            match (&self.socket).read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
                read => break read?,
            }
        };
        answers(buffer.get(..n).unwrap_or_default()).for_each(&mut each);
        Ok(())
    }
}

fn is(error: &io::Error, numbers: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|n| numbers.contains(&n))
}

/// A message from the kernel.
#[derive(Debug)]
enum Answer<'a> {
    /// The end of a list.
    Done,
    /// A rule of any table.
    Rule {
        table: &'a str,
        chain: &'a str,
        comment: &'a str,
    },
    /// Result of a message; no error means success.
    Status {
        sequence: u32,
        error: Option<io::Error>,
    },
}

/// Splits a datagram into messages; truncated and unknown ones are skipped.
fn answers(mut datagram: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    let messages = std::iter::from_fn(move || {
        let length = usize::try_from(native_u32(datagram, 0)?).ok()?;
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(message)
    });
    messages.filter_map(answer)
}

fn answer(message: &[u8]) -> Option<Answer<'_>> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let payload = message.get(HEADER..)?;
    match i32::from(kind) {
        libc::NLMSG_DONE => Some(Answer::Done),
        libc::NLMSG_ERROR => {
            let number = native_u32(payload, 0)?.cast_signed();
            Some(Answer::Status {
                // Sequence number of the answered message, after the error number.
                sequence: native_u32(payload, 4 + 8)?,
                error: (number != 0).then(|| io::Error::from_raw_os_error(number.wrapping_neg())),
            })
        }
        _ if kind == (SUBSYSTEM << 8 | NEW_RULE) => {
            let (mut table, mut chain, mut comment) = ("", "", "");
            for (kind, value) in attributes(payload.get(GENERIC..)?) {
                match kind {
                    RULE_TABLE => table = text(value),
                    RULE_CHAIN => chain = text(value),
                    RULE_USER_DATA => comment = value.get(2..).map_or("", text),
                    _ => {}
                }
            }
            Some(Answer::Rule {
                table,
                chain,
                comment,
            })
        }
        _ => None,
    }
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..usize::from(length))?;
        bytes = bytes
            .get(usize::from(length).next_multiple_of(4)..)
            .unwrap_or_default();
        Some((kind & !NESTED, value))
    })
}

/// Returns the text up to the first zero byte.
fn text(bytes: &[u8]) -> &str {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

fn native_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut built = Attributes::default();
        built.nested(3, |inner| inner.text(1, "abcd"));
        built.number(2, 7);
        let parsed: Vec<_> = attributes(&built.0).collect();
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0].0, 3);
        assert_eq!(parsed[1], (2, &[0, 0, 0, 7][..]));
        assert_eq!(attributes(parsed[0].1).next(), Some((1, &b"abcd\0"[..])));
    }

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let mut attributes = named(RULE_TABLE);
        attributes.text(RULE_CHAIN, "inbound");
        attributes.bytes(RULE_USER_DATA, b"\0\x05hear\0");
        let bytes = message(SUBSYSTEM << 8 | NEW_RULE, 0, 1, INET, 0, &attributes);
        let read: Vec<_> = answers(&bytes).collect();
        assert!(
            matches!(
                read[..],
                [Answer::Rule {
                    table: "maglor",
                    chain: "inbound",
                    comment: "hear"
                }]
            ),
            "{read:?}"
        );
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        let bytes = message(SUBSYSTEM << 8 | NEW_RULE, 0, 1, INET, 0, &named(RULE_TABLE));
        for n in 0..bytes.len() {
            assert_eq!(answers(&bytes[..n]).count(), 0, "{n}");
        }
        assert_eq!(answers(&[0; 64]).count(), 0);
        assert_eq!(answers(&[0xff; 64]).count(), 0);
    }
}
