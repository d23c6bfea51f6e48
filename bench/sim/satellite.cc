// One TCP flow over a satellite link in ns-3, for `make bench-sim`.
//   satellite BER SEED SECONDS
// A -- 10 Mb/s, 30 ms -- B -- 2 Mb/s, 250 ms -- C; SACK, 500-byte segments with true headers, delayed
// ACKs of 100 ms, a window that fills the link, queues without bound. Prints the segments that C
// delivered. ns-3 has no Snoop.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdlib>
#include <iostream>

using namespace ns3;

namespace
{

constexpr uint32_t SEGMENT = 500;
constexpr uint16_t PORT = 9;
// Fourteen times what the link holds. ns-3 takes longer the more it has under way: docs/bench-sim.md.
constexpr uint32_t WINDOW = 2000000;

void
SetDefaults()
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(100)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(WINDOW));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(WINDOW));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(10)));
}

NetDeviceContainer
Join(Ptr<Node> from, Ptr<Node> to, const char* rate, const char* delay, const char* network)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", StringValue(delay));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
    NetDeviceContainer devices = link.Install(from, to);
    Ipv4AddressHelper addresses(network, "255.255.255.0");
    addresses.Assign(devices);
    // Assigning addresses installs FqCoDel; the device's own queue is the only one here.
    TrafficControlHelper().Uninstall(devices);
    return devices;
}

} // namespace

int
main(int argc, char* argv[])
{
    if (argc != 4)
    {
        std::cerr << "usage: satellite BER SEED SECONDS" << std::endl;
        return 2;
    }
    const double ber = std::atof(argv[1]);
    const double seconds = std::atof(argv[3]);
    RngSeedManager::SetSeed(std::strtoul(argv[2], nullptr, 10));
    SetDefaults();

    NodeContainer nodes(3);
    InternetStackHelper().Install(nodes);
    Join(nodes.Get(0), nodes.Get(1), "10Mbps", "30ms", "10.0.1.0");
    NetDeviceContainer satellite =
        Join(nodes.Get(1), nodes.Get(2), "2Mbps", "250ms", "10.0.2.0");
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    if (ber > 0)
    {
        Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_BIT);
        errors->SetRate(ber);
        satellite.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }

    InetSocketAddress receiver(Ipv4Address("10.0.2.2"), PORT);
    ApplicationContainer sink =
        PacketSinkHelper("ns3::TcpSocketFactory", receiver).Install(nodes.Get(2));
    BulkSendHelper bulk("ns3::TcpSocketFactory", receiver);
    bulk.SetAttribute("SendSize", UintegerValue(SEGMENT));
    bulk.Install(nodes.Get(0)).Start(Seconds(0));

    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    std::cout << DynamicCast<PacketSink>(sink.Get(0))->GetTotalRx() / SEGMENT << std::endl;
    Simulator::Destroy();
    return 0;
}
