//! Responses as Python sees them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use heads::Answering;

use crate::requests::{check_line, length, RequestHead};
use crate::{or_absent, Limits, OrRefused, Refused, Rest};

#[pyclass(module = "controller.proxy.codec")]
pub struct ResponseReader {
    reader: heads::ResponseReader,
    /// Of the latest plain answer: its status, and the bytes of its body.
    status: u16,
    length: usize,
}

/// What was read.
#[derive(IntoPyObject)]
enum Read {
    Plain(Py<PyBytes>),
    Head(Option<ResponseHead>),
    Refused(Refused),
}

#[pymethods]
impl ResponseReader {
    #[new]
    fn new(limits: &Limits) -> Self {
        ResponseReader { reader: heads::ResponseReader::new(limits.0), status: 0, length: 0 }
    }

    fn feed(&mut self, data: &Bound<'_, PyBytes>, request: &RequestHead) -> OrRefused<Option<ResponseHead>> {
        let fed = self.reader.feed(data.as_bytes(), &request.head);
        OrRefused::of(fed.map(|fed| fed.map(|(head, end)| ResponseHead { head, rest: Rest::new(data, end) })))
    }

    /// One call for what most answers have in common: each object and question between costs Python 30 ns and more.
    fn read(
        &mut self,
        data: &Bound<'_, PyBytes>,
        request: &RequestHead,
        request_id: &[u8],
        date: &[u8],
    ) -> PyResult<Read> {
        let bytes = data.as_bytes();
        let (head, end) = match self.reader.feed(bytes, &request.head) {
            Ok(Some(fed)) => fed,
            Ok(None) => return Ok(Read::Head(None)),
            Err(refusal) => return Ok(Read::Refused(Refused(refusal))),
        };
        let body = &bytes[end..];
        if !head.is_plain(body.len()) {
            return Ok(Read::Head(Some(ResponseHead { head, rest: Rest::new(data, end) })));
        }
        (self.status, self.length) = (head.status, body.len());
        let head = head.forward(&checked(false, request_id, date, b"")?);
        let whole = PyBytes::new_with(data.py(), head.len() + body.len(), |out| {
            let (front, back) = out.split_at_mut(head.len());
            front.copy_from_slice(&head);
            back.copy_from_slice(body);
            Ok(())
        })?;
        Ok(Read::Plain(whole.unbind()))
    }

    #[getter]
    fn status(&self) -> u16 {
        self.status
    }

    #[getter]
    fn length(&self) -> usize {
        self.length
    }

    #[getter]
    fn started(&self) -> bool {
        self.reader.started()
    }
}

#[pyclass(frozen, module = "controller.proxy.codec")]
pub struct ResponseHead {
    pub(crate) head: heads::ResponseHead,
    rest: Rest,
}

#[pymethods]
impl ResponseHead {
    #[getter]
    fn status(&self) -> u16 {
        self.head.status
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
    fn keep_alive_timeout(&self) -> i64 {
        or_absent(self.head.keep_alive_timeout())
    }

    #[getter]
    fn retry_after(&self) -> f64 {
        self.head.retry_after().map_or(-1.0, |seconds| seconds as f64)
    }

    #[getter]
    fn upgrade(&self) -> bool {
        self.head.upgrade
    }

    #[getter]
    fn ends_by_close(&self) -> bool {
        self.head.ends_by_close()
    }

    fn take_rest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.rest.take(py)
    }

    fn field<'py>(&self, py: Python<'py>, name: &[u8]) -> Option<Bound<'py, PyBytes>> {
        self.head.field(name).map(|value| PyBytes::new(py, value))
    }

    #[pyo3(signature = (close, request_id, date, extra=b"" as &[u8]))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        close: bool,
        request_id: &[u8],
        date: &[u8],
        extra: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answering = checked(close, request_id, date, extra)?;
        Ok(PyBytes::new(py, &self.head.forward(&answering)))
    }

    fn __repr__(&self) -> String {
        format!("ResponseHead({}, length={})", self.head.status, length(self.head.framing))
    }
}

/// What we put into a head ourselves must not split it either.
fn checked<'a>(close: bool, request_id: &'a [u8], date: &'a [u8], extra: &'a [u8]) -> PyResult<Answering<'a>> {
    check_line("request_id", request_id)?;
    check_line("date", date)?;
    if !extra.is_empty() && (!extra.ends_with(b"\r\n") || extra.windows(4).any(|four| four == b"\r\n\r\n")) {
        return Err(PyValueError::new_err("extra must be complete lines, each with its CRLF"));
    }
    Ok(Answering { close, request_id, date, extra })
}
