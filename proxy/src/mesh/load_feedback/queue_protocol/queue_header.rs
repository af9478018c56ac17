//! The field `x-maglor-queue`.
//!
//! In a request from an outbound to an inbound proxy: `limit=3` admits the request only if at most three others are
//! in flight; `ticket=EPOCH.NUMBER` is the ledger's ticket; the two are separated by a comma. In the response to such
//! a request: `in-flight=7`, or `refused=7` if the request was not admitted. Numbers are decimal. The applications
//! never see the field.

use maglor_balance::queue_protocol::{Admission, Ticket};
use smallvec::SmallVec;

use crate::protocol::fields::{Fields, Known};

/// Content of the field in a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct QueueRequest {
    pub(crate) admission: Admission,
    pub(crate) ticket: Option<Ticket>,
}

/// Content of the field in a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum QueueResponse {
    /// The request was admitted; this many other requests were in flight when it ended.
    InFlight(u32),
    /// The request was rejected because this many requests were in flight.
    Refused(u32),
}

impl QueueRequest {
    /// Reads the field of a request; `None` if it is missing or invalid.
    pub(crate) fn of(fields: &Fields) -> Option<Self> {
        Self::parse(fields.get(Known::XMaglorQueue)?)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let mut asked = Self {
            admission: Admission::Always,
            ticket: None,
        };
        for part in std::str::from_utf8(value).ok()?.split(',') {
            // Unknown keys of later versions are ignored.
            match part.trim().split_once('=')? {
                ("limit", limit) => asked.admission = Admission::AtMost(limit.parse().ok()?),
                ("ticket", ticket) => {
                    let (epoch, number) = ticket.split_once('.')?;
                    asked.ticket = Some(Ticket {
                        epoch: epoch.parse().ok().filter(|epoch| *epoch != 0)?,
                        number: number.parse().ok()?,
                    });
                }
                _ => {}
            }
        }
        Some(asked)
    }

    /// Sets the field of a request. Without a condition and a ticket, removes the field that an earlier attempt has
    /// set.
    pub(crate) fn set(&self, fields: &mut Fields) {
        let mut value = SmallVec::<[u8; 48]>::new();
        let mut digits = itoa::Buffer::new();
        if let Admission::AtMost(limit) = self.admission {
            value.extend_from_slice(b"limit=");
            value.extend_from_slice(digits.format(limit).as_bytes());
        }
        if let Some(Ticket { epoch, number }) = self.ticket {
            let name: &[u8] = if value.is_empty() {
                b"ticket="
            } else {
                b",ticket="
            };
            value.extend_from_slice(name);
            value.extend_from_slice(digits.format(epoch).as_bytes());
            value.push(b'.');
            value.extend_from_slice(digits.format(number).as_bytes());
        }
        if value.is_empty() {
            fields.remove(Known::XMaglorQueue);
        } else {
            fields.set(Known::XMaglorQueue, &value);
        }
    }
}

impl QueueResponse {
    /// Reads the field of a response.
    pub(crate) fn of(fields: &Fields) -> Option<Self> {
        Self::parse(fields.get(Known::XMaglorQueue)?)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (name, number) = std::str::from_utf8(value).ok()?.trim().split_once('=')?;
        let number = number.parse().ok()?;
        match name {
            "in-flight" => Some(Self::InFlight(number)),
            "refused" => Some(Self::Refused(number)),
            _ => None,
        }
    }

    /// Sets the field of a response.
    pub(crate) fn set(self, fields: &mut Fields) {
        let (name, number) = match self {
            Self::InFlight(number) => (&b"in-flight="[..], number),
            Self::Refused(number) => (&b"refused="[..], number),
        };
        let mut value = SmallVec::<[u8; 24]>::from_slice(name);
        value.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        fields.set(Known::XMaglorQueue, &value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: &str) -> Option<QueueRequest> {
        let mut fields = Fields::default();
        fields.push(Known::XMaglorQueue, value.as_bytes());
        QueueRequest::of(&fields)
    }

    #[test]
    fn requests_say_limit_and_ticket() {
        let both = QueueRequest {
            admission: Admission::AtMost(3),
            ticket: Some(Ticket {
                epoch: 9,
                number: 4_294_967_295,
            }),
        };
        let mut fields = Fields::default();
        both.set(&mut fields);
        let value = b"limit=3,ticket=9.4294967295";
        assert_eq!(fields.get(Known::XMaglorQueue), Some(&value[..]));
        assert_eq!(QueueRequest::of(&fields), Some(both));
        let neither = QueueRequest {
            admission: Admission::Always,
            ticket: None,
        };
        both.set(&mut fields);
        neither.set(&mut fields);
        assert!(!fields.contains(Known::XMaglorQueue));
        assert_eq!(
            asked(" later=1 , limit=0"),
            Some(QueueRequest {
                admission: Admission::AtMost(0),
                ..neither
            })
        );
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        for value in [
            "",
            "limit",
            "limit=-1",
            "limit=x",
            "ticket=5",
            "ticket=0.1",
            "limit=99999999999",
        ] {
            assert_eq!(asked(value), None, "{value}");
        }
    }

    #[test]
    fn responses_say_how_many() {
        for said in [QueueResponse::InFlight(0), QueueResponse::Refused(u32::MAX)] {
            let mut fields = Fields::default();
            said.set(&mut fields);
            assert_eq!(QueueResponse::of(&fields), Some(said));
        }
        let mut fields = Fields::default();
        fields.push(Known::XMaglorQueue, b"busy");
        assert_eq!(QueueResponse::of(&fields), None);
    }
}
