//! A page for Prometheus in the OpenMetrics text format 1.0.

use std::fmt::{self, Write as _};

/// The kinds of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It may go either way.
    Gauge,
    /// Counts up to bounds.
    Histogram,
}

/// The text so far.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// The lines before a metric's values.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn head(&mut self, name: &str, kind: Kind, help: &str) -> fmt::Result {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        writeln!(self.0, "# TYPE bentpipe_{name} {kind}")?;
        writeln!(self.0, "# HELP bentpipe_{name} {help}")
    }

    /// A metric that only grows.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.head(name, Kind::Counter, help)?;
        writeln!(self.0, "bentpipe_{name}_total {value}")
    }

    /// A metric that may go either way.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.head(name, Kind::Gauge, help)?;
        writeln!(self.0, "bentpipe_{name} {value}")
    }

    /// One metric with a value for each label.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn family(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        self.head(name, kind, help)?;
        let suffix = if kind == Kind::Counter { "_total" } else { "" };
        for (of, value) in values {
            writeln!(
                self.0,
                "bentpipe_{name}{suffix}{{{label}=\"{of}\"}} {value}"
            )?;
        }
        Ok(())
    }

    /// The values of a histogram: how many there are up to each bound and above the one before, and their sum; `labels` as
    /// `leg="sat"`, or empty.
    ///
    /// # Errors
    /// None: writing to a text does not fail.
    pub fn distribution(
        &mut self,
        name: &str,
        labels: &str,
        buckets: &[(f64, u64)],
        sum: f64,
    ) -> fmt::Result {
        let mut count = 0;
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, more) in buckets {
            count += more;
            write!(self.0, "bentpipe_{name}_bucket{{{labels}{comma}le=\"")?;
            match *bound {
                f64::MAX => self.0.push_str("+Inf"),
                // A canonical number has a point.
                bound => write!(self.0, "{bound:?}")?,
            }
            writeln!(self.0, "\"}} {count}")?;
        }
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        writeln!(self.0, "bentpipe_{name}_sum{labels} {}", sum)?;
        writeln!(self.0, "bentpipe_{name}_count{labels} {count}")
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}
