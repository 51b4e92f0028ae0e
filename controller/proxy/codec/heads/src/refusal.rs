//! Why a message can't be served.

/// What to answer, and a fixed word for logs. The input is never reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status to answer a client with; 502 for what a backend sent.
    pub status: u16,
    pub reason: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Refusal { status, reason }
    }

    /// 400, what most malformed requests get.
    pub(crate) const fn bad(reason: &'static str) -> Self {
        Refusal { status: 400, reason }
    }

    /// The same fault in a response: the backend's, not the client's.
    pub(crate) const fn of_response(self) -> Self {
        Refusal { status: 502, reason: self.reason }
    }
}
