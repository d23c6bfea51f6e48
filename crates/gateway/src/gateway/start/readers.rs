//! Starts the threads that read queues of packets, each where the configuration asks for it: the filter chain skipper,
//! Snoop, the carrier and the ACK thinner.

use super::{StartError, carrier, system};
use crate::ack_thinning::AckThinner;
use crate::filter_chain_skipper::FilterChainSkipper;
use crate::gateway::thread_set::{Role, ThreadSet};
use crate::snoop::Snooper;
use bentpipe_carrier::CarrierHandle;
use bentpipe_gateway_config::Config;
use bentpipe_interception::{Interception, Marks, QueueReader};
use bentpipe_relay::{Counters, Shared};
use std::io;
use std::sync::Arc;

/// How many readers there are, each with counters of its own.
pub(super) const READERS: usize = 4;

/// What the readers are made of.
pub(super) struct Readers<'a> {
    pub(super) config: &'a Config,
    pub(super) marks: Marks,
    pub(super) interception: &'a Interception,
    pub(super) shared: &'a Arc<Shared>,
    pub(super) thread_set: &'a mut ThreadSet,
}

impl Readers<'_> {
    /// Starts them, each with one of `counters`. Returns the handle of the carrier, where there is one.
    pub(super) fn start(
        mut self,
        counters: [Arc<Counters>; READERS],
    ) -> Result<Option<CarrierHandle>, StartError> {
        let [skipper, snooper, carried, thinner] = counters;
        self.skip_filter_chains(skipper)?;
        self.snoop(snooper)?;
        let carrier = carrier::spawn(
            self.thread_set,
            self.shared,
            (self.config, self.marks),
            (
                self.interception.carrier_place(),
                self.interception.switch(),
            ),
            carried,
        )?;
        self.thin_acks(thinner)?;
        Ok(carrier)
    }

    fn skip_filter_chains(&mut self, counters: Arc<Counters>) -> Result<(), StartError> {
        let skipper = FilterChainSkipper::new(self.marks, Arc::clone(self.shared), counters)
            .map_err(system("watch the rules of nft"))?;
        self.spawn(QueueReader::Chains, Ok(move || skipper.run()), "")
    }

    fn snoop(&mut self, counters: Arc<Counters>) -> Result<(), StartError> {
        if !self.config.snoops() {
            return Ok(());
        }
        let parts = (self.marks, self.interception);
        let made = Snooper::new(self.config, parts, Arc::clone(self.shared), counters)
            .map(|snooper| move || snooper.run());
        let without = "connections with `action = \"snoop\"` pass end to end without help";
        self.spawn(QueueReader::Snoop, made, without)
    }

    fn thin_acks(&mut self, counters: Arc<Counters>) -> Result<(), StartError> {
        let Some(rate) = self.config.sat.ack_rate else {
            return Ok(());
        };
        let link = (rate, self.config.sat.link.overhead);
        let parts = (Arc::clone(self.shared), counters);
        let made = AckThinner::new(link, self.marks, self.interception.switch(), parts)
            .map(|thinner| move || thinner.run());
        let without = "acknowledgements are not thinned out: they cannot be held";
        self.spawn(QueueReader::Acks, made, without)
    }

    /// Starts one, where it could be made; what happens `without` it is logged, and told by the status.
    fn spawn(
        &mut self,
        reader: QueueReader,
        made: Result<impl FnOnce() -> io::Result<()> + Send + 'static, String>,
        without: &str,
    ) -> Result<(), StartError> {
        match made {
            Ok(work) => self
                .thread_set
                .spawn(
                    reader.name().to_owned(),
                    Role::Reads(reader),
                    self.shared,
                    work,
                )
                .map_err(system("start a thread")),
            Err(why) => {
                let lack = format!("{without}: {why}");
                tracing::warn!("{lack}");
                self.thread_set.lacks.push(lack);
                Ok(())
            }
        }
    }
}
