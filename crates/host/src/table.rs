use crate::Tuple;
use crate::listener::ListenerId;
use crate::secret::{Secret, TableHasher};
use bentpipe_base::Instant;
use bentpipe_tcp::Connection;
use hashbrown::HashTable;

/// Names a connection of a host; no later one has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    pub(crate) place: u32,
    /// How many had that place before.
    generation: u32,
}

/// Who cares for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Its listener, until it is accepted.
    Listener(ListenerId),
    /// The application that opened or accepted it.
    Application,
    /// Nobody any more: it delivers what it has, and ends.
    Nobody,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) tuple: Tuple,
    pub(crate) connection: Connection,
    pub(crate) owner: Owner,
    /// The earliest deadline that the host's queue of them has for it.
    pub(crate) armed: Instant,
    /// It waits to be asked for packets.
    pub(crate) ready: bool,
    /// Bytes that it held when the host last looked.
    pub(crate) buffered: u64,
    /// It was told to offer its peer no more room.
    pub(crate) pressed: bool,
    /// Retransmission timeouts when the last byte was acknowledged.
    pub(crate) timeouts: u64,
    /// Bytes that were acknowledged when the host last looked.
    pub(crate) acknowledged: u64,
    /// Set once no application holds the connection any more: whether only the peer's FIN is waited for, and until when.
    pub(crate) linger: Option<(bool, Instant)>,
    /// How much had been learnt of paths when its own was last looked at.
    pub(crate) paths_known: u64,
}

/// The connections of a host, by their four numbers and by name.
#[derive(Debug)]
pub(crate) struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
    /// By the hash of the four numbers, which stand in the entry alone: a copy as key would take 100 bytes for each
    /// connection.
    by_tuple: HashTable<ConnectionId>,
    hasher: TableHasher,
}

/// How many entries had a place before, and the one that has it.
type Place = (u32, Option<Box<Entry>>);

impl Table {
    /// An empty one, whose hashes nobody can guess.
    pub(crate) fn new(secret: &Secret) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            by_tuple: HashTable::new(),
            hasher: secret.table_hasher(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_tuple.len()
    }

    pub(crate) fn find(&self, tuple: &Tuple) -> Option<ConnectionId> {
        let hash = self.hasher.hash(tuple);
        let same = |id: &ConnectionId| self.get(*id).is_some_and(|entry| entry.tuple == *tuple);
        self.by_tuple.find(hash, same).copied()
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Entry> {
        let (generation, entry) = self.places.get(id.place as usize)?;
        entry.as_deref().filter(|_| *generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        let (generation, entry) = self.places.get_mut(id.place as usize)?;
        let same = *generation == id.generation;
        entry.as_deref_mut().filter(|_| same)
    }

    /// A connection begins; none has its four numbers.
    pub(crate) fn insert(
        &mut self,
        tuple: Tuple,
        connection: Connection,
        owner: Owner,
    ) -> ConnectionId {
        let entry = Box::new(Entry {
            tuple,
            connection,
            owner,
            armed: Instant::MAX,
            ready: false,
            buffered: 0,
            pressed: false,
            timeouts: 0,
            acknowledged: 0,
            linger: None,
            paths_known: 0,
        });
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.places.push((0, None));
                // Bounded by `Config::connections`, and by the tuples that there are.
                (self.places.len() - 1) as u32
            }
        };
        let (generation, room) = &mut self.places[place as usize];
        *room = Some(entry);
        let id = ConnectionId {
            place,
            generation: *generation,
        };
        let (places, hasher) = (&self.places, &self.hasher);
        let rehash = |id: &ConnectionId| {
            let (_, entry) = &places[id.place as usize];
            entry.as_ref().map_or(0, |entry| hasher.hash(&entry.tuple))
        };
        self.by_tuple.insert_unique(hasher.hash(&tuple), id, rehash);
        id
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Entry>> {
        let (generation, room) = self.places.get_mut(id.place as usize)?;
        if *generation != id.generation {
            return None;
        }
        let entry = room.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.place);
        let hash = self.hasher.hash(&entry.tuple);
        if let Ok(found) = self.by_tuple.find_entry(hash, |found| *found == id) {
            found.remove();
        }
        Some(entry)
    }
}
