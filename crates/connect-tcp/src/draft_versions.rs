//! The one table of what differs from draft to draft.

/// Types of the capsules that carry a TCP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// DATA: some bytes.
    pub data: u64,
    /// FINAL_DATA: the last bytes, after which there are no more.
    pub final_data: u64,
}

/// One published form of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The upgrade token, as `:protocol` has it.
    pub token: &'static str,
    /// Its capsules.
    pub numbers: Numbers,
    /// What has it.
    pub summary: &'static str,
}

/// All that are understood, the newest first: that is what our clients ask for. The RFC will have the token `connect-tcp` and
/// types of one byte, which are not assigned yet; they are one more entry here.
pub const DRAFTS: &[Draft] = &[
    Draft {
        token: "connect-tcp-12",
        numbers: Numbers {
            data: 0x2028_d7f2,
            final_data: 0x2028_d7f3,
        },
        summary: "drafts 12 and 13",
    },
    Draft {
        token: "connect-tcp-08",
        numbers: Numbers {
            data: 0x2028_d7f0,
            final_data: 0x2028_d7f1,
        },
        summary: "the draft author's code for drafts up to 11",
    },
    Draft {
        token: "connect-tcp-07",
        numbers: Numbers {
            data: 0x2028_d7f0,
            final_data: 0x2028_d7f1,
        },
        summary: "the text of drafts up to 11",
    },
];

impl Draft {
    /// The draft of this token.
    pub fn find(token: &[u8]) -> Option<&'static Self> {
        DRAFTS.iter().find(|draft| draft.token.as_bytes() == token)
    }
}
