// D4's experiment on ns-3: four nodes, TCP, a silent crash, and what is sent again.
//
// One run a trial; prints a line of CSV for each. A trial is a failure time and the phases of ACKs,
// heartbeats, turns and checkpoints. Time 0 is when the network has settled: all connections that
// are opened in advance are open. Bytes are counted until the crash. Content travels beside the
// packets: a connection delivers in order, so the receiver only counts bytes and takes as many
// messages from the sender's list. The parameters are those of aftlib/documents/upstream_backup/system.py.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

struct Settings {
  std::string scheme = "upstream-backup";
  std::string failed = "primary";
  std::string trials = "3000:0:0:0:0";  // ms, see main; separated by commas
  double rate = 1000, ackMs = 25, heartbeatMs = 100, switchingMs = 100, checkpointMs = 25;
  double bandwidthMbps = 16, delayMs = 5, processingUs = 10, writeMs = 1;
  uint32_t tupleBytes = 58, messageBytes = 8, stateBytes = 58;
  uint32_t initialWindow = 10, segmentBytes = 522;
  uint32_t delayedAcks = 2;  // segments for one TCP acknowledgement: ns-3's default; 1: not delayed
  bool firstAtOnce = true;   // whether the first segment's acknowledgement is not delayed
  bool handshake = true;
  std::string nagle = "off";  // connections with Nagle's algorithm, see main
} settings;

struct Trial {
  double failureMs = 0, ackMs = 0, heartbeatMs = 0, switchingMs = 0, checkpointMs = 0;
};

Time Ms(double value) { return NanoSeconds(static_cast<int64_t>(std::llround(value * 1e6))); }

// A socket that delays the acknowledgement of a connection's first segment like any other's, as
// older versions of ns-3 do. Newer ones send it at once: their counter starts at its limit.
class DelayingSocket : public TcpSocketBase {
 public:
  static Ptr<Socket> Create(Ptr<Node> node) {
    Ptr<TcpL4Protocol> tcp = node->GetObject<TcpL4Protocol>();
    Ptr<DelayingSocket> socket = CreateObject<DelayingSocket>();
    socket->SetNode(node);
    socket->SetTcp(tcp);
    socket->SetRtt(CreateObject<RttMeanDeviation>());
    socket->SetCongestionControlAlgorithm(CreateObject<TcpNewReno>());
    socket->SetRecoveryAlgorithm(CreateObject<TcpClassicRecovery>());
    tcp->AddSocket(socket);
    return socket;
  }

 private:
  Ptr<TcpSocketBase> Fork() override { return CopyObject<DelayingSocket>(this); }

  void ReceivedData(Ptr<Packet> packet, const TcpHeader& header) override {
    if (!m_received) m_delAckCount = 0;
    m_received = true;
    TcpSocketBase::ReceivedData(packet, header);
  }

  bool m_received = false;
};

// A TCP connection in one direction that carries messages of known sizes.
class Channel {
 public:
  struct Message {
    uint32_t bytes;
    int64_t value;
  };
  using Batch = std::vector<Message>;
  using Deliver = std::function<void(const Batch&)>;

  Channel(Ptr<Node> from, Ptr<Node> to, Ipv4Address address, uint16_t port, bool nagle,
          Deliver deliver)
      : m_from(from), m_address(address), m_port(port), m_nagle(nagle),
        m_deliver(std::move(deliver)) {
    m_listener = settings.firstAtOnce ? Socket::CreateSocket(to, TcpSocketFactory::GetTypeId())
                                      : DelayingSocket::Create(to);
    m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    m_listener->Listen();
    m_listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                  MakeCallback(&Channel::Accepted, this));
  }

  void Open() {
    m_socket = Socket::CreateSocket(m_from, TcpSocketFactory::GetTypeId());
    m_socket->SetAttribute("TcpNoDelay", BooleanValue(!m_nagle));
    m_socket->Bind();
    m_socket->SetConnectCallback(MakeCallback(&Channel::Connected, this),
                                 MakeNullCallback<void, Ptr<Socket>>());
    m_socket->Connect(InetSocketAddress(m_address, m_port));
  }

  bool opened() const { return static_cast<bool>(m_socket); }

  // One write of all messages, as an application would make it.
  void Send(const Batch& batch) {
    m_sent.insert(m_sent.end(), batch.begin(), batch.end());
    for (const auto& message : batch) m_unwritten += message.bytes;
    if (m_connected) Write();
  }

 private:
  void Write() {
    if (m_unwritten == 0) return;
    const int taken = m_socket->Send(Create<Packet>(m_unwritten));
    NS_ABORT_MSG_IF(taken != static_cast<int>(m_unwritten), "the send buffer is too small");
    m_unwritten = 0;
  }

  void Connected(Ptr<Socket>) {
    m_connected = true;
    Write();
  }

  void Accepted(Ptr<Socket> socket, const Address&) {
    m_accepted = socket;
    socket->SetRecvCallback(MakeCallback(&Channel::Received, this));
  }

  void Received(Ptr<Socket> socket) {
    while (Ptr<Packet> packet = socket->Recv()) {
      if (packet->GetSize() == 0) break;
      m_bytes += packet->GetSize();
    }
    Batch batch;
    while (!m_sent.empty() && m_bytes >= m_sent.front().bytes) {
      m_bytes -= m_sent.front().bytes;
      batch.push_back(m_sent.front());
      m_sent.pop_front();
    }
    if (!batch.empty()) m_deliver(batch);
  }

  Ptr<Node> m_from;
  Ipv4Address m_address;
  uint16_t m_port;
  bool m_nagle;
  Deliver m_deliver;
  Ptr<Socket> m_listener, m_socket, m_accepted;
  std::deque<Message> m_sent;
  uint64_t m_bytes = 0;
  uint32_t m_unwritten = 0;
  bool m_connected = false;
};

// The whole system for one failure.
class Standby {
 public:
  explicit Standby(const Trial& trial)
      : m_trial(trial), m_crash(Ms(trial.failureMs)), m_begin(Ms(1000 + 10 * settings.delayMs)) {
    m_nodes.Create(4);
    InternetStackHelper().Install(m_nodes);
    m_both = settings.scheme.rfind("active-standby", 0) == 0;
    m_wan = settings.scheme == "active-standby-wan";
    m_proposed = settings.scheme == "proposed";
    m_passive = settings.scheme == "passive-standby";
    m_failed = settings.failed == "primary" ? 0 : 1;
    Connect();
  }

  void Run() {
    Every(settings.writeMs, 0, [this] { Emit(); });
    if (m_passive)
      Every(settings.checkpointMs, settings.checkpointMs + m_trial.checkpointMs, [this] { Checkpoint(); });
    else if (!m_wan)
      Every(settings.ackMs, settings.ackMs + m_trial.ackMs, [this] { Acknowledge(); });
    for (int monitor : {1, 0})
      if (monitor == 1 || m_proposed)
        Every(settings.heartbeatMs, m_trial.heartbeatMs, [this, monitor] { Beat(monitor); });
    Simulator::Schedule(m_begin + m_crash, &Standby::Crash, this);
    Simulator::Stop(m_begin + m_crash + Ms(2 * settings.heartbeatMs + 800));
    Simulator::Run();
    Print();
  }

 private:
  static constexpr int kUp = 2, kDown = 3;  // nodes 0 and 1 are the primary and the secondary
  enum Kind { kStream, kCopies, kAcks, kCheckpoints, kHeartbeats, kRequests, kKinds };

  void Every(double ms, double first, std::function<void()> action) {
    Simulator::Schedule(m_begin + Ms(first), [this, ms, action] { Again(ms, action); });
  }

  void Again(double ms, const std::function<void()>& action) {
    action();
    Simulator::Schedule(Ms(ms), [this, ms, action] { Again(ms, action); });
  }

  Time Clock() const { return Simulator::Now() - m_begin; }

  // A link of its own between two nodes; nobody forwards.
  void Wire(int a, int b) {
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(settings.bandwidthMbps * 1e6)));
    link.SetChannelAttribute("Delay", TimeValue(Ms(settings.delayMs)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
    NetDeviceContainer devices = link.Install(m_nodes.Get(a), m_nodes.Get(b));
    for (uint32_t i : {0, 1})
      devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Standby::Count, this));
    // a queue discipline would drop: the links' own queues are the only ones
    std::ostringstream base;
    base << "10.0." << ++m_subnet << ".0";
    Ipv4AddressHelper addresses(base.str().c_str(), "255.255.255.0");
    Ipv4InterfaceContainer found = addresses.Assign(devices);
    TrafficControlHelper().Uninstall(devices);
    m_address[a][b] = found.GetAddress(1);
    m_address[b][a] = found.GetAddress(0);
  }

  // Bytes of segments with a payload, headers included, by the kind of their connection.
  void Count(Ptr<const Packet> packet) {
    if (Clock().IsNegative() || m_dead) return;
    Ptr<Packet> copy = packet->Copy();
    PppHeader ppp;
    Ipv4Header ip;
    TcpHeader tcp;
    copy->RemoveHeader(ppp);
    copy->RemoveHeader(ip);
    if (ip.GetProtocol() != 6) return;
    copy->RemoveHeader(tcp);
    const auto kind = m_kinds.find(tcp.GetDestinationPort());
    if (copy->GetSize() > 0 && kind != m_kinds.end()) m_counted[kind->second] += packet->GetSize();
  }

  Channel* Make(Kind kind, int from, int to, Channel::Deliver deliver, bool open = true) {
    auto guarded = [this, to, deliver](const Channel::Batch& batch) {
      if (Alive(to)) deliver(batch);
    };
    m_channels.push_back(std::make_unique<Channel>(m_nodes.Get(from), m_nodes.Get(to),
                                                   m_address[from][to], ++m_port,
                                                   Waits(kind, from, to), guarded));
    m_kinds[m_port] = kind;
    if (open) m_channels.back()->Open();
    return m_channels.back().get();
  }

  // Whether a connection has Nagle's algorithm. Messages of the protocol never have it: with delayed
  // acknowledgements a heartbeat would wait for the last one's, and its node would look dead.
  bool Waits(Kind kind, int from, int to) const {
    if (settings.nagle == "stream") return kind == kStream || kind == kCopies;
    const bool opened = !m_both && !m_proposed && from == kUp && to == 1 - m_failed;
    return settings.nagle == "recovery" && opened && kind == kStream;
  }

  void Connect() {
    for (int node : {0, 1}) {
      Wire(kUp, node);
      Wire(node, kDown);
    }
    Wire(0, 1);
    for (int node : {0, 1}) {
      const int other = 1 - node;
      const bool used = node == 0 || m_both || m_proposed || !settings.handshake || m_passive;
      const Kind flow = node == 1 && m_both ? kCopies : kStream;
      const Kind told = m_passive ? kCheckpoints : kAcks;
      m_data[node] = Make(flow, kUp, node, [this, node](auto& b) { Process(node, b); }, used);
      const bool sends = node == 0 || m_wan || m_proposed || !m_both || !settings.handshake;
      m_result[node] = Make(flow, node, kDown, [this, node](auto& b) { Arrive(node, b); }, sends);
      m_level0[node] = Make(kAcks, kDown, node, [this, node](auto& b) { Level0(node, b); });
      // in passive standby it is the secondary that tells what the primary has done
      m_level1[node] =
          Make(told, node, kUp, [this, node](auto& b) { Level1(m_passive ? 0 : node, b); });
      m_beat[node] = Make(kHeartbeats, node, other,
                          [this, node](auto&) { m_answer[1 - node]->Send({Small()}); });
      m_answer[node] = Make(kHeartbeats, node, other,
                            [this, other](auto&) { m_unanswered[other] = false; });
      m_request[node] = Make(kRequests, node, kUp, [this, node](auto&) { Request(node); });
      m_state[node] = Make(told, node, other, [this, other](auto& b) { Trim(other, b); });
    }
  }

  static Channel::Message Small(int64_t value = 0) { return {settings.messageBytes, value}; }

  bool Alive(int node) const { return !(m_dead && node == m_failed); }

  // Upstream -------------------------------------------------------------------------------------

  int Turn() const {
    const int64_t slot = Ms(settings.switchingMs).GetNanoSeconds();
    const int64_t since = (Clock() - Ms(m_trial.switchingMs)).GetNanoSeconds();
    return (since % (2 * slot) + 2 * slot) / slot % 2;
  }

  void Emit() {
    const double now = Clock().GetSeconds();
    Channel::Batch batch;
    while (m_next / settings.rate <= now + 1e-12) batch.push_back({settings.tupleBytes, m_next++});
    if (batch.empty()) return;
    for (int node : {0, 1}) {
      const int target = m_requested ? 1 - m_failed : (m_proposed ? Turn() : 0);
      if (!m_both && node != target) continue;
      for (const auto& message : batch) m_queue[node].push_back(message.value);
      m_data[node]->Send(batch);
    }
  }

  void Level1(int node, const Channel::Batch& batch) {
    const int64_t upTo = batch.back().value;
    while (!m_queue[node].empty() && m_trimmed[node] < upTo) {
      m_queue[node].pop_front();
      ++m_trimmed[node];
    }
  }

  void Request(int from) {
    if (m_requested) return;
    m_requested = true;
    m_requestTime = Simulator::Now();
    auto& lost = m_queue[1 - from];
    m_resent = lost.size();
    Channel::Batch batch;
    for (int64_t id : lost) batch.push_back({settings.tupleBytes, id});
    if (!batch.empty()) m_last = lost.back();
    if (!m_data[from]->opened()) m_data[from]->Open();
    m_data[from]->Send(batch);
  }

  // Primary and secondary ------------------------------------------------------------------------

  void Process(int node, const Channel::Batch& batch) {
    Time cost = NanoSeconds(std::llround(settings.processingUs * 1000)) * batch.size();
    m_busy[node] = std::max(m_busy[node], Simulator::Now()) + cost;
    Simulator::Schedule(m_busy[node] - Simulator::Now(), [this, node, batch] {
      if (!Alive(node)) return;
      m_done[node] += batch.size();
      if (m_requested && m_last >= 0 && node != m_failed)
        for (const auto& message : batch)
          if (message.value == m_last) m_recovered = Simulator::Now();
      if (!m_both || m_wan || node == 0 || m_taken) {
        m_result[node]->Send(batch);
      } else {
        for (const auto& message : batch) m_outputs.push_back(message.value);
        TrimOutputs();
      }
    });
  }

  void Level0(int node, const Channel::Batch& batch) {
    if (m_both)
      m_state[node]->Send({Small(batch.back().value)});
    else
      m_level1[node]->Send({Small(batch.back().value)});
  }

  void Checkpoint() {
    if (!Alive(0) || m_done[0] == m_checkpointed) return;
    const uint32_t size = (m_done[0] - m_checkpointed) * settings.stateBytes;
    m_checkpointed = m_done[0];
    m_state[0]->Send({{settings.messageBytes + size, static_cast<int64_t>(m_checkpointed)}});
  }

  // What the other node tells: a checkpoint (passive), or which results have arrived (active).
  void Trim(int node, const Channel::Batch& batch) {
    if (m_passive) {
      m_level1[node]->Send({Small(batch.back().value)});
    } else if (m_both) {
      m_known = batch.back().value;
      TrimOutputs();
    }
  }

  void TrimOutputs() {
    while (!m_outputs.empty() && m_outputs.front() < m_known) m_outputs.pop_front();
  }

  void Beat(int monitor) {
    if (!Alive(monitor) || m_detected) return;
    if (m_unanswered[monitor]) {
      NS_ABORT_MSG_IF(!m_dead, "a node was taken for dead before it died: the heartbeat is too short");
      m_detected = true;
      m_detectTime = Simulator::Now();
      if (!m_both)
        m_request[monitor]->Send({Small()});
      else if (!m_wan)
        TakeOver(monitor);
      return;
    }
    m_unanswered[monitor] = true;
    m_beat[monitor]->Send({Small()});
  }

  void TakeOver(int node) {
    m_taken = true;
    m_requestTime = Simulator::Now();
    m_resent = m_outputs.size();
    Channel::Batch batch;
    for (int64_t id : m_outputs) batch.push_back({settings.tupleBytes, id});
    if (!m_outputs.empty()) m_last = m_outputs.back();
    if (!m_result[node]->opened()) m_result[node]->Open();
    m_result[node]->Send(batch);
  }

  void Crash() {
    m_dead = true;
    m_atCrash = m_both ? m_outputs.size() : m_queue[m_failed].size();
    Ptr<Ipv4> ip = m_nodes.Get(m_failed)->GetObject<Ipv4>();
    for (uint32_t i = 1; i < ip->GetNInterfaces(); ++i) ip->SetDown(i);
  }

  // Downstream -----------------------------------------------------------------------------------

  void Arrive(int node, const Channel::Batch& batch) {
    m_arrived[node] += batch.size();
    for (const auto& message : batch)
      if (m_detected && node != m_failed && message.value == m_last) m_caughtUp = Simulator::Now();
  }

  void Acknowledge() {
    for (int node : {0, 1})
      if (m_arrived[node] > m_acknowledged[node]) {
        m_acknowledged[node] = m_arrived[node];
        m_level0[node]->Send({Small(m_arrived[node])});
      }
  }

  double Since(Time begin, Time end) const { return end.IsZero() ? 0 : (end - begin).GetNanoSeconds() / 1e6; }

  void Print() {
    std::cout << m_crash.GetNanoSeconds() / 1e6 << "," << m_atCrash << "," << m_resent << ","
              << (m_both ? 0 : Since(m_requestTime, m_recovered)) << ","
              << Since(m_detectTime, m_caughtUp);
    for (int kind : {kStream, kCopies, kAcks, kCheckpoints, kHeartbeats})
      std::cout << "," << m_counted[kind] / m_crash.GetSeconds();
    std::cout << std::endl;
  }

  const Trial m_trial;
  const Time m_crash, m_begin;
  std::map<uint16_t, Kind> m_kinds;
  uint64_t m_counted[kKinds] = {};
  Time m_requestTime, m_detectTime, m_recovered, m_caughtUp;
  Time m_busy[2];
  NodeContainer m_nodes;
  Ipv4Address m_address[4][4];
  std::vector<std::unique_ptr<Channel>> m_channels;
  Channel *m_data[2], *m_result[2], *m_level0[2], *m_level1[2], *m_beat[2], *m_answer[2],
      *m_request[2], *m_state[2];
  std::deque<int64_t> m_queue[2], m_outputs;
  int64_t m_next = 0, m_last = -1, m_known = 0, m_trimmed[2] = {0, 0};
  uint64_t m_done[2] = {0, 0}, m_checkpointed = 0, m_arrived[2] = {0, 0}, m_acknowledged[2] = {0, 0};
  size_t m_atCrash = 0, m_resent = 0;
  int m_failed = 0, m_subnet = 0;
  uint16_t m_port = 1000;
  bool m_unanswered[2] = {false, false};
  bool m_both, m_wan, m_proposed, m_passive;
  bool m_dead = false, m_detected = false, m_requested = false, m_taken = false;
};

}  // namespace

int main(int argc, char* argv[]) {
  CommandLine command;
  command.AddValue("scheme", "name of the scheme", settings.scheme);
  command.AddValue("failed", "primary or secondary", settings.failed);
  command.AddValue("trials",
                   "failure:ack:heartbeat:switching:checkpoint, a time and phases in ms, separated by "
                   "commas",
                   settings.trials);
  command.AddValue("rate", "tuples a second", settings.rate);
  command.AddValue("ack", "ACK interval, ms", settings.ackMs);
  command.AddValue("heartbeat", "heartbeat interval, ms", settings.heartbeatMs);
  command.AddValue("switching", "switching interval, ms", settings.switchingMs);
  command.AddValue("checkpoint", "checkpoint interval, ms", settings.checkpointMs);
  command.AddValue("bandwidth", "of every link, Mbps", settings.bandwidthMbps);
  command.AddValue("delay", "of every link, one way, ms", settings.delayMs);
  command.AddValue("processing", "of a tuple, us", settings.processingUs);
  command.AddValue("write", "interval of upstream's writes, ms", settings.writeMs);
  command.AddValue("tuple", "bytes", settings.tupleBytes);
  command.AddValue("message", "bytes of an ACK, a heartbeat, a request", settings.messageBytes);
  command.AddValue("state", "bytes a tuple in checkpoint messages", settings.stateBytes);
  command.AddValue("initialWindow", "segments", settings.initialWindow);
  command.AddValue("segment", "bytes; a multiple of the tuple", settings.segmentBytes);
  command.AddValue("delayedAcks", "segments for one TCP acknowledgement; 1: at once",
                   settings.delayedAcks);
  command.AddValue("firstAtOnce", "acknowledge a connection's first segment at once",
                   settings.firstAtOnce);
  command.AddValue("handshake", "open the connection at recovery only", settings.handshake);
  command.AddValue("nagle",
                   "connections with Nagle's algorithm: off, recovery (upstream backup's, opened at "
                   "recovery) or stream (all that carry tuples or results)",
                   settings.nagle);
  command.Parse(argc, argv);
  NS_ABORT_MSG_IF(settings.nagle != "off" && settings.nagle != "recovery" && settings.nagle != "stream",
                  "nagle must be off, recovery or stream, got " << settings.nagle);

  Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(settings.segmentBytes));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(settings.initialWindow));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(settings.delayedAcks));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 26));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 26));

  std::cout.precision(12);
  std::cout << "failure_ms,queue_at_crash,resent,recovery_ms,caught_up_ms,stream_bps,copies_bps,"
               "acks_bps,checkpoints_bps,heartbeats_bps"
            << std::endl;
  std::istringstream trials(settings.trials);
  for (std::string text; std::getline(trials, text, ',');) {
    Trial trial;
    const int read =
        std::sscanf(text.c_str(), "%lf:%lf:%lf:%lf:%lf", &trial.failureMs, &trial.ackMs,
                    &trial.heartbeatMs, &trial.switchingMs, &trial.checkpointMs);
    NS_ABORT_MSG_IF(read != 5, "a trial is a failure time and four phases, got " << text);
    NS_ABORT_MSG_IF(!(trial.failureMs > 0 && trial.failureMs < 1e7),
                    "a failure time must lie in (0, 1e7) ms");
    Standby(trial).Run();
    Simulator::Destroy();
  }
  return 0;
}
