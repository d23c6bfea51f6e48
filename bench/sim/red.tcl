# ns-2's RED, for docs/queues/red.md: the same as red.toml, 40 seeds a cell in red.reference.csv.
# usage: ns red.tcl FLOWS GENTLE(true|false) BYTES(true|false) SEED ?key val ...?
# prints FLOWS,GENTLE,BYTES,SEED,segments in order at the receivers,packets dropped by the queue
remove-all-packet-headers
add-packet-header Flags IP TCP
array set o {T 100 bw 2Mb d 50ms ebw 10Mb ed 5ms min 5 max 15 limit 50 w 0.002 linterm 10 mean 1500}
lassign $argv F gentle bytes seed
foreach {k v} [lrange $argv 4 end] {set o($k) $v}
set ns [new Simulator]
ns-random $seed
Agent/TCP set packetSize_ 1460
Agent/TCP set windowInit_ 2
Agent/TCP set window_ 10000
Agent/TCP set rtxcur_init_ 3.0
Queue/RED set thresh_ $o(min)
Queue/RED set maxthresh_ $o(max)
Queue/RED set q_weight_ $o(w)
Queue/RED set linterm_ $o(linterm)
Queue/RED set mean_pktsize_ $o(mean)
Queue/RED set gentle_ $gentle
Queue/RED set bytes_ $bytes
Queue/RED set queue_in_bytes_ $bytes
set A [$ns node]; set B [$ns node]; set C [$ns node]
$ns duplex-link $A $B $o(ebw) $o(ed) DropTail
$ns queue-limit $A $B 1000000; $ns queue-limit $B $A 1000000
$ns simplex-link $B $C $o(bw) $o(d) RED
$ns simplex-link $C $B $o(bw) $o(d) DropTail
$ns queue-limit $B $C $o(limit); $ns queue-limit $C $B 1000000
set qm [$ns monitor-queue $B $C ""]
for {set i 0} {$i < $F} {incr i} {
  set tcp($i) [new Agent/TCP/Sack1]; set sink($i) [new Agent/TCPSink/Sack1/DelAck]
  $ns attach-agent $A $tcp($i); $ns attach-agent $C $sink($i); $ns connect $tcp($i) $sink($i)
  set ftp($i) [$tcp($i) attach-app FTP]
  $ns at 0 "$ftp($i) start"
}
proc fin {} {global ns F sink qm argv
  set all 0
  for {set i 0} {$i < $F} {incr i} {set all [expr {$all + int(([$sink($i) set bytes_]-40.0)/1500+0.5)}]}
  puts "[join [lrange $argv 0 3] ,],$all,[$qm set pdrops_]"
  exit 0 }
$ns at $o(T) fin
$ns run
