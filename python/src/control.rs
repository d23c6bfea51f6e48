//! Congestion controls that are written in Python: an object with the methods of `cc::Congestion` that it wants.
//!
//! What an object raises ends the run, and is what the run raises. Until the run has ended its control does nothing more.

use bentpipe_base::{Instant, Rate};
use bentpipe_cc::{Ack, Congestion, LostSegment, Phase, Signal};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The sender's window, as a control sees and edits it.
#[pyclass(module = "bentpipe._native")]
pub(crate) struct Window(bentpipe_cc::Window);

#[pymethods]
impl Window {
    #[getter]
    fn cwnd(&self) -> u32 {
        self.0.cwnd
    }

    #[setter]
    fn set_cwnd(&mut self, segments: u32) -> PyResult<()> {
        if segments == 0 {
            return Err(PyValueError::new_err(
                "cwnd is 0: a window has at least 1 segment",
            ));
        }
        self.0.cwnd = segments;
        Ok(())
    }

    #[getter]
    fn ssthresh(&self) -> Option<u32> {
        known(self.0.ssthresh)
    }

    #[setter]
    fn set_ssthresh(&mut self, segments: Option<u32>) {
        self.0.ssthresh = segments.unwrap_or(u32::MAX);
    }

    #[getter]
    fn pacing_mbps(&self) -> Option<f64> {
        self.0.pacing.map(|rate| rate.mbps())
    }

    #[setter]
    fn set_pacing_mbps(&mut self, mbps: Option<f64>) -> PyResult<()> {
        let rate = mbps.map(|mbps| {
            let bits = (mbps * 1e6).round();
            // Up to 1 Tbit/s: whole numbers there are exact.
            let rate = (1.0..=1e12).contains(&bits).then_some(bits as u64);
            rate.map(Rate::from_bits_per_sec).ok_or_else(|| {
                let why = format!("pacing_mbps is {mbps}: a rate from 1e-6 to 1e6 Mbit/s, or None");
                PyValueError::new_err(why)
            })
        });
        self.0.pacing = rate.transpose()?;
        Ok(())
    }

    #[getter]
    fn in_flight(&self) -> u32 {
        self.0.in_flight
    }

    #[getter]
    fn offered(&self) -> Option<u32> {
        known(self.0.offered)
    }

    #[getter]
    fn mss_bytes(&self) -> u64 {
        self.0.mss.0
    }

    #[getter]
    fn wire_bytes(&self) -> u64 {
        self.0.wire.0
    }

    fn __repr__(&self) -> String {
        let ssthresh = known(self.0.ssthresh).map_or("None".to_owned(), |it| it.to_string());
        format!(
            "<Window: cwnd {}, ssthresh {ssthresh}, in flight {} segments>",
            self.0.cwnd, self.0.in_flight
        )
    }
}

fn known(segments: u32) -> Option<u32> {
    (segments != u32::MAX).then_some(segments)
}

/// One acknowledgement.
#[pyclass(frozen, module = "bentpipe._native", name = "Ack")]
pub(crate) struct PyAck(Ack);

#[pymethods]
impl PyAck {
    #[getter]
    fn now_s(&self) -> f64 {
        seconds(self.0.now)
    }

    #[getter]
    fn una(&self) -> u32 {
        self.0.una.0
    }

    #[getter]
    fn next(&self) -> u32 {
        self.0.next.0
    }

    #[getter]
    fn rtt_s(&self) -> Option<f64> {
        self.0.rtt.map(|it| it.as_secs_f64())
    }

    #[getter]
    fn srtt_s(&self) -> Option<f64> {
        self.0.srtt.map(|it| it.as_secs_f64())
    }

    #[getter]
    fn acked(&self) -> u32 {
        self.0.acked
    }

    #[getter]
    fn lost(&self) -> u32 {
        self.0.lost
    }

    #[getter]
    fn sent(&self) -> u32 {
        self.0.sent
    }

    #[getter]
    fn phase(&self) -> &'static str {
        phase(self.0.phase)
    }

    #[getter]
    fn cwnd_limited(&self) -> bool {
        self.0.cwnd_limited
    }

    #[getter]
    fn hungry(&self) -> bool {
        self.0.hungry
    }

    #[getter]
    fn delivered(&self) -> Option<u64> {
        self.0.delivery.map(|it| it.total)
    }

    #[getter]
    fn delivery_rate(&self) -> Option<f64> {
        let delivery = self.0.delivery?;
        delivery.rate(&delivery.sample?)
    }

    #[getter]
    fn app_limited(&self) -> bool {
        let sample = self.0.delivery.and_then(|it| it.sample);
        sample.is_some_and(|sample| sample.app_limited)
    }

    fn __repr__(&self) -> String {
        format!(
            "<Ack at {} s: {} segments acknowledged, {} lost, {}>",
            self.now_s(),
            self.0.acked,
            self.0.lost,
            self.phase()
        )
    }
}

fn seconds(at: Instant) -> f64 {
    (at - Instant::ZERO).as_secs_f64()
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Open => "open",
        Phase::Disorder => "disorder",
        Phase::Cwr => "cwr",
        Phase::Recovery => "recovery",
        Phase::Loss => "loss",
    }
}

const fn signal(signal: Signal) -> &'static str {
    match signal {
        Signal::Start => "start",
        Signal::Restart => "restart",
        Signal::Reduced => "reduced",
        Signal::Timeout => "timeout",
    }
}

/// What makes the control of each flow that has one of Python's, and the first exception.
pub(crate) struct Controls {
    makers: BTreeMap<String, Py<PyAny>>,
    /// `bentpipe.CongestionControl`.
    base: Py<PyAny>,
    fault: Arc<Fault>,
}

/// The first exception of a run's controls.
#[derive(Default)]
struct Fault {
    raised: AtomicBool,
    error: Mutex<Option<PyErr>>,
}

impl Fault {
    fn note(&self, error: PyErr) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        self.raised.store(true, Ordering::Relaxed);
    }
}

impl Controls {
    /// `makers` has what is called for the control of each flow.
    pub(crate) fn new(py: Python<'_>, makers: BTreeMap<String, Py<PyAny>>) -> PyResult<Self> {
        let base = py.import("bentpipe.control")?;
        let base = base.getattr("CongestionControl")?.unbind();
        Ok(Self {
            makers,
            base,
            fault: Arc::default(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.makers.is_empty()
    }

    /// Is raised when a control has failed.
    pub(crate) fn failed(&self) -> &AtomicBool {
        &self.fault.raised
    }

    /// The first exception of a control.
    pub(crate) fn error(&self) -> Option<PyErr> {
        let mut error = self.fault.error.lock();
        let error = error.as_mut().ok()?;
        error.take()
    }

    /// The control of `flow`, if it has one of Python's.
    pub(crate) fn of(&self, flow: &str) -> Option<Box<dyn Congestion>> {
        let maker = self.makers.get(flow)?;
        let made = Python::attach(|py| {
            let object = maker.bind(py).call0()?;
            Control::new(object, self.base.bind(py), Arc::clone(&self.fault))
        });
        match made {
            Ok(control) => Some(Box::new(control)),
            Err(error) => {
                self.fault.note(error);
                None
            }
        }
    }
}

/// Methods that a control need not have: `None` where it leaves that to the base class, which does what [`Congestion`] does.
struct Methods {
    on_ack: Py<PyAny>,
    ssthresh: Option<Py<PyAny>>,
    init: Option<Py<PyAny>>,
    on_phase: Option<Py<PyAny>>,
    on_signal: Option<Py<PyAny>>,
    on_lost: Option<Py<PyAny>>,
    undo: Option<Py<PyAny>>,
    holds_back: Option<Py<PyAny>>,
}

/// The control of one connection.
struct Control {
    name: &'static str,
    governs_recovery: bool,
    samples_deliveries: bool,
    methods: Methods,
    /// What the methods are handed, the same each time.
    window: Py<Window>,
    fault: Arc<Fault>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("name", &self.name).finish()
    }
}

impl Control {
    fn new(object: Bound<'_, PyAny>, base: &Bound<'_, PyAny>, fault: Arc<Fault>) -> PyResult<Self> {
        let py = object.py();
        let class = object.get_type();
        if !object.is_instance(base)? {
            let name = class.name()?;
            let why =
                format!("a {name} is no congestion control: derive it from CongestionControl");
            return Err(PyTypeError::new_err(why));
        }
        let own = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            let overridden = !class.getattr(name)?.is(base.getattr(name)?);
            overridden
                .then(|| object.getattr(name).map(Bound::unbind))
                .transpose()
        };
        let nothing = bentpipe_cc::Window {
            cwnd: 1,
            ssthresh: u32::MAX,
            in_flight: 0,
            offered: u32::MAX,
            mss: bentpipe_base::Bytes(0),
            wire: bentpipe_base::Bytes(0),
            pacing: None,
        };
        Ok(Self {
            name: interned(class.name()?.to_str()?),
            governs_recovery: object.getattr("governs_recovery")?.is_truthy()?,
            samples_deliveries: object.getattr("samples_deliveries")?.is_truthy()?,
            methods: Methods {
                on_ack: object.getattr("on_ack")?.unbind(),
                ssthresh: own("ssthresh")?,
                init: own("init")?,
                on_phase: own("on_phase")?,
                on_signal: own("on_signal")?,
                on_lost: own("on_lost")?,
                undo: own("undo")?,
                holds_back: own("holds_back")?,
            },
            window: Py::new(py, Window(nothing))?,
            fault,
        })
    }

    /// Has `call` call a method with the window, which it may edit. After an exception nothing is called any more.
    fn edit(
        &self,
        window: &mut bentpipe_cc::Window,
        call: impl FnOnce(Python<'_>, &Py<Window>) -> PyResult<()>,
    ) {
        let edited = self.tried(window, |py, seen| {
            call(py, seen)?;
            let edited = &seen.borrow(py).0;
            Ok((edited.cwnd, edited.ssthresh, edited.pacing))
        });
        if let Some(edited) = edited {
            (window.cwnd, window.ssthresh, window.pacing) = edited;
        }
    }

    /// What `call` returns, which may read the window.
    fn tried<T>(
        &self,
        window: &bentpipe_cc::Window,
        call: impl FnOnce(Python<'_>, &Py<Window>) -> PyResult<T>,
    ) -> Option<T> {
        if self.fault.raised.load(Ordering::Relaxed) {
            return None;
        }
        let result = Python::attach(|py| {
            self.window.try_borrow_mut(py)?.0 = *window;
            call(py, &self.window)
        });
        result.map_err(|error| self.fault.note(error)).ok()
    }
}

/// `name`, kept for good, as the names of a registry are: there are as many as classes.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(kept);
    kept
}

/// The window of a method's answer.
fn segments(method: &str, answer: &Bound<'_, PyAny>, least: u32) -> PyResult<u32> {
    let segments = answer.extract::<u32>().map_err(|error| {
        let given = answer
            .repr()
            .map_or_else(|_| "?".to_owned(), |it| it.to_string());
        let why = format!("{method} returned {given}: a whole number of segments is wanted");
        let wrong = PyTypeError::new_err(why);
        wrong.set_cause(answer.py(), Some(error));
        wrong
    })?;
    if segments < least {
        let why = format!("{method} returned {segments}: at least {least} segments are wanted");
        return Err(PyValueError::new_err(why));
    }
    Ok(segments)
}

impl Congestion for Control {
    fn name(&self) -> &'static str {
        self.name
    }

    fn governs_recovery(&self) -> bool {
        self.governs_recovery
    }

    fn samples_deliveries(&self) -> bool {
        self.samples_deliveries
    }

    fn on_ack(&mut self, window: &mut bentpipe_cc::Window, ack: &Ack) {
        self.edit(window, |py, seen| {
            self.methods.on_ack.call1(py, (seen, PyAck(*ack)))?;
            Ok(())
        });
    }

    fn ssthresh(&mut self, window: &bentpipe_cc::Window) -> u32 {
        let half = (window.cwnd / 2).max(2);
        let Some(method) = &self.methods.ssthresh else {
            return half;
        };
        let answer = self.tried(window, |py, seen| {
            segments("ssthresh", method.call1(py, (seen,))?.bind(py), 1)
        });
        answer.unwrap_or(half)
    }

    fn init(&mut self, window: &mut bentpipe_cc::Window, now: Instant, rtt: Option<Duration>) {
        if let Some(method) = &self.methods.init {
            let rtt = rtt.map(|it| it.as_secs_f64());
            self.edit(window, |py, seen| {
                method.call1(py, (seen, seconds(now), rtt)).map(drop)
            });
        }
    }

    fn on_phase(&mut self, window: &mut bentpipe_cc::Window, next: Phase) {
        if let Some(method) = &self.methods.on_phase {
            self.edit(window, |py, seen| {
                method.call1(py, (seen, phase(next))).map(drop)
            });
        }
    }

    fn on_signal(&mut self, window: &mut bentpipe_cc::Window, what: Signal, now: Instant) {
        if let Some(method) = &self.methods.on_signal {
            self.edit(window, |py, seen| {
                method
                    .call1(py, (seen, signal(what), seconds(now)))
                    .map(drop)
            });
        }
    }

    fn on_lost(&mut self, window: &bentpipe_cc::Window, lost: &LostSegment) {
        if let Some(method) = &self.methods.on_lost {
            let LostSegment { now, lost, .. } = *lost;
            self.tried(window, |py, seen| {
                method.call1(py, (seen, seconds(now), lost)).map(drop)
            });
        }
    }

    fn undo(&mut self, window: &bentpipe_cc::Window, prior: u32) -> u32 {
        let usual = window.cwnd.max(prior);
        let Some(method) = &self.methods.undo else {
            return usual;
        };
        let answer = self.tried(window, |py, seen| {
            segments("undo", method.call1(py, (seen, prior))?.bind(py), 1)
        });
        answer.unwrap_or(usual)
    }

    fn holds_back(&self) -> bool {
        let Some(method) = &self.methods.holds_back else {
            return false;
        };
        if self.fault.raised.load(Ordering::Relaxed) {
            return false;
        }
        let answer = Python::attach(|py| method.call0(py)?.bind(py).is_truthy());
        answer.unwrap_or_else(|error| {
            self.fault.note(error);
            false
        })
    }
}
