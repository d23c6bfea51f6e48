//! A run as a document: one schema for both engines, each key with its unit in its name.

use crate::measure::MEASURES;
use crate::run::{Flow, Mean, Run};
use bentpipe_base::{Bytes, Rate};
use core::time::Duration;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The version of the schema: it grows when a key goes or changes its meaning, not when one comes.
pub const SCHEMA: u32 = 3;

/// [`Run`] with the version of the schema in front and its measures behind it.
#[derive(Clone, Debug, Serialize)]
pub struct Document<'r> {
    schema: u32,
    #[serde(flatten)]
    run: &'r Run,
    measures: BTreeMap<&'static str, Measured>,
}

#[derive(Clone, Debug, Serialize)]
struct Measured {
    value: f64,
    unit: &'static str,
}

impl Run {
    /// As `--json` and result folders tell it; `docs/results.md` explains each key.
    pub fn document(&self) -> Document<'_> {
        let measures = MEASURES.iter().filter_map(|measure| {
            let value = measure.of(self)?;
            let unit = measure.unit;
            Some((measure.name, Measured { value, unit }))
        });
        Document {
            schema: SCHEMA,
            run: self,
            measures: measures.collect(),
        }
    }
}

/// [`Flow`] with what follows from it.
#[derive(Serialize)]
struct FlowDocument<'f> {
    #[serde(flatten)]
    flow: &'f Flow,
    goodput_mbps: f64,
}

pub(crate) fn flows<S: Serializer>(flows: &[Flow], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(flows.iter().map(|flow| FlowDocument {
        flow,
        goodput_mbps: flow.goodput().mbps(),
    }))
}

pub(crate) fn seconds<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(time.as_secs_f64())
}

pub(crate) fn maybe_seconds<S: Serializer>(
    time: &Option<Duration>,
    out: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(out)
}

pub(crate) fn maybe_ms<S: Serializer>(time: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    time.map(|time| 1e3 * time.as_secs_f64()).serialize(out)
}

pub(crate) fn ms<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(1e3 * time.as_secs_f64())
}

pub(crate) fn all_ms<S: Serializer>(times: &[Duration], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(times.iter().map(|time| 1e3 * time.as_secs_f64()))
}

pub(crate) fn bytes<S: Serializer>(bytes: &Bytes, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(bytes.0)
}

pub(crate) fn maybe_bytes<S: Serializer>(bytes: &Option<Bytes>, out: S) -> Result<S::Ok, S::Error> {
    bytes.map(|bytes| bytes.0).serialize(out)
}

pub(crate) fn maybe_mbps<S: Serializer>(rate: &Option<Rate>, out: S) -> Result<S::Ok, S::Error> {
    rate.map(Rate::mbps).serialize(out)
}

/// Their mean; null where there is none.
pub(crate) fn mean<S: Serializer>(mean: &Mean, out: S) -> Result<S::Ok, S::Error> {
    mean.value().serialize(out)
}

pub(crate) fn counters<S: Serializer>(
    counters: &[(&'static str, u64)],
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_map(counters.iter().copied())
}
