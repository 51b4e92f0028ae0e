//! Requests as Python sees them.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use heads::{Framing, Sending};

use crate::{or_absent, Limits, OrRefused, Rest};

/// How requests of one port are rewritten.
#[pyclass(frozen, module = "controller.proxy.codec")]
pub struct Forwarding(heads::Forwarding);

#[pymethods]
impl Forwarding {
    #[new]
    #[pyo3(signature = (*, hop, port, trusted=Vec::new(), pod_address=None))]
    fn new(hop: &str, port: u16, trusted: Vec<String>, pod_address: Option<&str>) -> PyResult<Self> {
        heads::Forwarding::new(hop, port, &trusted, pod_address)
            .map(Forwarding)
            .map_err(|invalid| PyValueError::new_err(invalid.to_string()))
    }
}

/// Makes request ids: a prefix, and a number that counts.
#[pyclass(frozen, module = "controller.proxy.codec")]
pub struct Identifiers {
    prefix: Vec<u8>,
    made: AtomicU64,
}

#[pymethods]
impl Identifiers {
    #[new]
    fn new(prefix: &[u8]) -> PyResult<Self> {
        check_line("prefix", prefix)?;
        Ok(Identifiers { prefix: prefix.to_vec(), made: AtomicU64::new(0) })
    }

    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let digits = number.checked_ilog(16).unwrap_or(0) as usize + 1;
        PyBytes::new_with(py, self.prefix.len() + 1 + digits, |out| {
            let (prefix, rest) = out.split_at_mut(self.prefix.len());
            prefix.copy_from_slice(&self.prefix);
            rest[0] = b'-';
            for (place, digit) in rest[1..].iter_mut().rev().enumerate() {
                *digit = b"0123456789abcdef"[(number >> (4 * place) & 15) as usize];
            }
            Ok(())
        })
    }
}

#[pyclass(module = "controller.proxy.codec")]
pub struct RequestReader(heads::RequestReader);

#[pymethods]
impl RequestReader {
    #[new]
    fn new(limits: &Limits) -> Self {
        RequestReader(heads::RequestReader::new(limits.0))
    }

    fn feed(&mut self, data: &Bound<'_, PyBytes>) -> OrRefused<Option<RequestHead>> {
        let fed = self.0.feed(data.as_bytes());
        OrRefused::of(fed.map(|fed| fed.map(|(head, end)| RequestHead { head, rest: Rest::new(data, end) })))
    }

    #[getter]
    fn started(&self) -> bool {
        self.0.started()
    }
}

#[pyclass(frozen, module = "controller.proxy.codec")]
pub struct RequestHead {
    pub(crate) head: heads::RequestHead,
    rest: Rest,
}

type Value<'py> = Option<Bound<'py, PyBytes>>;

fn value<'py>(py: Python<'py>, bytes: Option<&[u8]>) -> Value<'py> {
    bytes.map(|bytes| PyBytes::new(py, bytes))
}

#[pymethods]
impl RequestHead {
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.head.method())
    }

    #[getter]
    fn target<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.head.target())
    }

    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> Value<'py> {
        value(py, self.head.host())
    }

    #[getter]
    fn version(&self) -> u8 {
        self.head.version
    }

    #[getter]
    fn length(&self) -> i64 {
        length(self.head.framing)
    }

    #[getter]
    fn keep_alive(&self) -> bool {
        self.head.keep_alive
    }

    #[getter]
    fn upgrade<'py>(&self, py: Python<'py>) -> Value<'py> {
        value(py, self.head.upgrade.as_deref())
    }

    #[getter]
    fn expect(&self) -> bool {
        self.head.expect
    }

    #[getter]
    fn te_trailers(&self) -> bool {
        self.head.te_trailers
    }

    #[getter]
    fn idempotent(&self) -> bool {
        self.head.is_idempotent()
    }

    #[getter]
    fn max_forwards(&self) -> i64 {
        or_absent(self.head.max_forwards)
    }

    #[getter]
    fn hops(&self) -> usize {
        self.head.hops(None)
    }

    #[getter]
    fn size(&self) -> usize {
        self.head.size()
    }

    #[getter]
    fn request_id<'py>(&self, py: Python<'py>) -> Value<'py> {
        value(py, self.head.request_id())
    }

    fn identifier<'py>(&self, py: Python<'py>, identifiers: &Identifiers) -> PyResult<Bound<'py, PyBytes>> {
        match self.head.request_id() {
            Some(theirs) => Ok(PyBytes::new(py, theirs)),
            None => identifiers.next(py),
        }
    }

    fn take_rest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.rest.take(py)
    }

    /// One question for what most requests have in common: each costs Python 30 ns and more.
    #[getter]
    fn plain(&self) -> bool {
        self.head.is_plain() && self.rest.size == 0
    }

    fn loops(&self, forwarding: &Forwarding) -> usize {
        self.head.hops(Some(&forwarding.0.hop))
    }

    fn field<'py>(&self, py: Python<'py>, name: &[u8]) -> Value<'py> {
        value(py, self.head.field(name))
    }

    fn cookie<'py>(&self, py: Python<'py>, name: &[u8]) -> Value<'py> {
        value(py, self.head.cookie(name))
    }

    fn query<'py>(&self, py: Python<'py>, name: &[u8]) -> Value<'py> {
        value(py, self.head.query(name))
    }

    fn path<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.head.path())
    }

    fn client(&self, forwarding: &Forwarding, peer: &str) -> String {
        self.head.client(&forwarding.0, peer)
    }

    fn scheme(&self, forwarding: &Forwarding, peer: &str) -> &'static str {
        if self.head.is_https(&forwarding.0, peer) {
            "https"
        } else {
            "http"
        }
    }

    fn forward<'py>(
        &self,
        py: Python<'py>,
        forwarding: &Forwarding,
        peer: &str,
        request_id: &[u8],
        authority: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        check_line("request_id", request_id)?;
        check_line("authority", authority)?;
        check_line("peer", peer.as_bytes())?;
        let sending = Sending { forwarding: &forwarding.0, peer, request_id, authority };
        Ok(PyBytes::new(py, &self.head.forward(&sending)))
    }

    fn __repr__(&self) -> String {
        let head = &self.head;
        format!(
            "RequestHead({} {}, length={})",
            head.method().escape_ascii(),
            head.target().escape_ascii(),
            length(head.framing)
        )
    }
}

/// 0 = none, -1 = chunked, -2 = until the close.
pub(crate) fn length(framing: Framing) -> i64 {
    match framing {
        Framing::None => 0,
        Framing::Chunked => -1,
        Framing::UntilClose => -2,
        Framing::Length(length) => i64::try_from(length).unwrap_or(i64::MAX),
    }
}

/// What we put into a head ourselves must not split it either.
pub(crate) fn check_line(what: &str, value: &[u8]) -> PyResult<()> {
    // Not `any`: without a way out half-way the compiler looks at many bytes at once.
    if value.iter().fold(false, |odd, byte| odd | byte.is_ascii_control()) {
        return Err(PyValueError::new_err(format!("{what} holds a control byte")));
    }
    Ok(())
}
