#include "worker/ring/grpc/peer_watch.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/message.h"
#include "worker/ring/grpc/pulse_streams.h"

namespace ringmaster::ring {
namespace {

// A goodbye takes one way to the neighbour and back; one that stands still is not waited for.
constexpr std::chrono::milliseconds kGoodbyeLimit{500};

}  // namespace

GrpcPeerWatch::GrpcPeerWatch(WatchOptions options, WatchStreams streams)
    : options_(std::move(options)), streams_(std::move(streams)), thread_([this]() { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "ring-pulse");
}

GrpcPeerWatch::~GrpcPeerWatch() {
  streams_.state->End();
  thread_.join();
  streams_.outgoing->Close();
  if (const auto incoming = streams_.state->incoming(); incoming != nullptr) {
    incoming->Close(ToGrpc(Error(absl::StatusCode::kAborted, "worker {} left generation {}",
                                 options_.self_name, options_.generation.ToString()),
                           kReasonLeft));
  }
  streams_.ending->Add(
      {.whose = "pulse of generation " + options_.generation.ToString(),
       .wait_done = [state = streams_.state](auto deadline) { return state->WaitDone(deadline); },
       .abort = [outgoing = streams_.outgoing]() { outgoing->Abort(); },
       .until = std::chrono::steady_clock::now() + kGoodbyeLimit});
}

void GrpcPeerWatch::Run() {
  for (uint64_t number = 1;;) {
    const WatchState::Turn turn = streams_.state->Wait();
    if (turn.ended) return;
    for (const Accusation& accusation : turn.verdict.accusations) {
      spdlog::warn("peer suspected: generation={} peer={}: {}", options_.generation.ToString(),
                   accusation.peer, accusation.reason);
      if (options_.suspect) options_.suspect(accusation.peer, accusation.reason);
    }
    if (turn.verdict.beat) Send(number++);
  }
}

void GrpcPeerWatch::Send(uint64_t number) {
  v1::Beat beat;
  beat.set_number(number);
  if (options_.content) {
    Pulse pulse = options_.content();
    beat.set_progress(pulse.progress);
    beat.set_phase(std::move(pulse.phase));
  }
  streams_.outgoing->Send(beat);
  if (const auto incoming = streams_.state->incoming(); incoming != nullptr) incoming->Send(beat);
}

}  // namespace ringmaster::ring
