# One TCP flow over a satellite link in ns-2, for `make bench-sim`.
#   ns satellite.tcl BER SEED SNOOP(0|1) SECONDS
# A -- 10 Mb/s, 30 ms -- B -- 2 Mb/s, 250 ms -- C; SACK, 500-byte segments of 516 bytes on the wire,
# delayed ACKs of 100 ms, window and queues without bound. Prints the segments that C delivered.

set ber [lindex $argv 0]
set seed [lindex $argv 1]
set snoop [lindex $argv 2]
set seconds [lindex $argv 3]
set wire 516

# Headers that no packet here has cost memory in every one of them.
remove-all-packet-headers
add-packet-header Flags IP TCP Snoop LL Mac ARP

Agent/TCP set packetSize_ $wire
Agent/TCP set useHeaders_ false
Agent/TCP set window_ 100000
Agent/TCP set windowInit_ 2
Agent/TCP set rtxcur_init_ 3.0
Agent/TCP set minrto_ 0.2
Snoop set maxbufs_ 0

ns-random $seed
set ns [new Simulator]
set a [$ns node]
set b [$ns node]
set c [$ns node]

proc join {from to rate delay} {
  global ns
  $ns duplex-link $from $to $rate $delay DropTail
  $ns queue-limit $from $to 1000000
  $ns queue-limit $to $from 1000000
}

join $a $b 10Mb 30ms
set gateway $b
if {$snoop} {
  # ns-2's Snoop is a link layer: it takes a LAN between B and the satellite link.
  set gateway [$ns node]
  set lan [$ns make-lan [list $gateway] 100Mb 0.01ms LL Queue/DropTail Mac/802_3]
  $lan addNode [list $b] 100Mb 0.01ms LL/LLSnoop Queue/DropTail Mac/802_3
}
join $gateway $c 2Mb 250ms

if {$ber > 0} {
  # Per byte: 1-(1-BER)^8, so a packet of n bytes is hit with probability 1-(1-BER)^(8n).
  set uniform [new RandomVariable/Uniform]
  $uniform set min_ 0
  $uniform set max_ 1
  set generator [new RNG]
  $generator seed [expr {7919 * $seed + 13}]
  $uniform use-rng $generator
  set errors [new ErrorModel]
  $errors unit byte
  $errors set rate_ [expr {1.0 - pow(1.0 - $ber, 8)}]
  $errors ranvar $uniform
  $errors drop-target [new Agent/Null]
  [$ns link $gateway $c] errormodule $errors
}

set source [new Agent/TCP/Sack1]
set sink [new Agent/TCPSink/Sack1/DelAck]
$ns attach-agent $a $source
$ns attach-agent $c $sink
$ns connect $source $sink
set application [$source attach-app FTP]

proc finish {} {
  global sink wire
  # The connection's first packet carries 40 bytes.
  puts [expr {int(([$sink set bytes_] - 40.0) / $wire + 0.5)}]
  exit 0
}

$ns at 0.0 "$application start"
$ns at $seconds finish
$ns run
