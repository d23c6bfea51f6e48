# A transfer through a spoofing proxy beside cross traffic in ns-2, for `make bench-sim`.
#   ns spoofing.tcl FLOWS PACKETS SEED SECONDS
# h1 -- r1 == satellite == r2 -- {h2, r3}, r3 == Internet == r4 -- {h4, r5}, h3 -- r3, h5 -- r5. h5 sends
# PACKETS to h1 from 5 s on, through a relay at h2, after one exchange between h5 and h1. FLOWS flows, in
# turn from h3 to h4 and back, carry transfers of 2^N(12, 4) bytes, at most 10 MB, with pauses of 0.6 s and
# Exp(45 s). SACK, delayed ACKs, packets of 1500 bytes. Ends when h1 has all and h5 knows, or after
# SECONDS; prints the packets that h1 has, the simulated time, and the processor time without set-up.

lassign $argv flows packets seed seconds
set payload 1460

remove-all-packet-headers
add-packet-header Flags IP TCP

Agent/TCP set packetSize_ $payload
Agent/TCP set window_ 10000
Agent/TCP set windowInit_ 2
Agent/TCP set rtxcur_init_ 3.0
Agent/TCP instproc done {} {}

ns-random $seed
set ns [new Simulator]
foreach name {h1 h2 h3 h4 h5 r1 r2 r3 r4 r5} { set $name [$ns node] }

proc join {from to {rate 10Mb} {delay 0.01ms} {queue 1000000}} {
  global ns
  $ns duplex-link $from $to $rate $delay DropTail
  $ns queue-limit $from $to $queue
  $ns queue-limit $to $from $queue
}

join $h1 $r1
join $r1 $r2 1.544Mb 250ms 64
join $h2 $r2
join $r2 $r3
join $r3 $r4 1.5Mb 69ms 17
join $h3 $r3
join $h4 $r4
join $r4 $r5
join $h5 $r5

proc connection {from to} {
  global ns
  set sender [new Agent/TCP/Sack1]
  set receiver [new Agent/TCPSink/Sack1/DelAck]
  $ns attach-agent $from $sender
  $ns attach-agent $to $receiver
  $ns connect $sender $receiver
  return [list $sender $receiver]
}

set generator [new RNG]
$generator seed [expr {104729 * $seed + 7}]
set uniform [new RandomVariable/Uniform]
$uniform use-rng $generator
$uniform set min_ 0
$uniform set max_ 1

proc exponential {mean} {
  global uniform
  return [expr {-$mean * log(1.0 - [$uniform value])}]
}

# In packets.
proc size {} {
  global uniform payload
  set radius [expr {sqrt(-2.0 * log(1.0 - [$uniform value]))}]
  set normal [expr {$radius * cos(8.0 * atan(1.0) * [$uniform value])}]
  set bytes [expr {pow(2.0, 12.0 + 4.0 * $normal)}]
  return [expr {int(ceil(min($bytes, 1e7) / $payload))}]
}

proc begin {sender receiver} {
  $sender reset
  $receiver reset
  $sender advanceby [size]
}

proc pause {sender receiver} {
  global ns
  $ns at [expr {[$ns now] + 0.6 + [exponential 45.0]}] "begin $sender $receiver"
}

set start 0.0
for {set i 0} {$i < $flows} {incr i} {
  if {$i % 2 == 0} { set ends [connection $h3 $h4] } else { set ends [connection $h4 $h3] }
  lassign $ends sender receiver
  $sender proc done {} "pause $sender $receiver"
  set start [expr {$start + [exponential 0.025]}]
  $ns at $start "$sender advanceby [size]"
}

lassign [connection $h5 $h2] first relayed
lassign [connection $h2 $h1] second sink
$first set syn_ false
$second set syn_ false

Class Relay -superclass Application
Relay instproc recv {bytes} {
  global second
  $second advanceby [expr {int($bytes / 1500.0 + 0.5)}]
}
set relay [new Relay]
$relay attach-agent $relayed
$relay start

# An exchange of one small packet, end to end.
set hello [new Agent/TCP]
set answer [new Agent/TCPSink]
$hello set packetSize_ 1
$hello set syn_ false
$ns attach-agent $h5 $hello
$ns attach-agent $h1 $answer
$ns connect $hello $answer
$hello proc done {} "$first advanceby $packets"
$ns at 5.0 "$hello advanceby 1"

# Seconds, to about 4 ms: the kernel counts at its ticks.
proc processor {} {
  set file [open /proc/self/schedstat]
  set nanoseconds [lindex [gets $file] 0]
  close $file
  return [expr {$nanoseconds / 1e9}]
}

proc finish {} {
  global second began
  puts "[expr {[$second set ack_] + 1}] [$::ns now] [expr {[processor] - $began}]"
  exit 0
}

set known 0
proc over {} {
  global ns known second packets
  if {$known && [$second set ack_] >= $packets - 1} { $ns at [$ns now] finish }
}
$first proc done {} { global known; set known 1; over }
$second proc done {} over

$ns at $seconds finish
set began [processor]
$ns run
