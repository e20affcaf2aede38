#pragma once
// Who pays for physical memory that has left its process as a descriptor: whoever made it, for as long as anybody holds
// a handle, a mapping or the descriptor; and when that process is gone, the first other one that has it. The kernel
// knows the holders: each exported descriptor is an open file of its own with a shared lock (flock), which goes exactly
// when the last copy and the last mapping of it do, whoever has them. So nobody need tell. What has come free in that
// way is given back at once to whoever asks here, and to the machine within some milliseconds. Thread-safe.
#include <cstdint>
#include <functional>
#include <memory>

#include "sim/device/arena.h"

namespace tensor_fusion::sim::cuda {

struct PhysicalMemory;

// Another descriptor of the same bytes for other processes; -1 when there is none to be had.
[[nodiscard]] int export_descriptor(const device::Physical& memory);
// Of memory that was made here and is paid for in that domain: writes so behind its bytes.
[[nodiscard]] bool name_payer(const PhysicalMemory& memory);
// Of memory that has come by descriptor: keeps it paid for, here if by nobody else.
void keep_paid(const std::shared_ptr<PhysicalMemory>& memory);
// Its last handle and mapping here are gone.
void end_payment(PhysicalMemory& memory);
// Memory of another kind that others hold: asked from time to time, and given back when they do not. Neither function
// may come back here. What a second's tries cannot give back stays charged to this process, and standard error says so.
void keep_until_let_go(std::function<bool()> held, std::function<bool()> give_back);
// Gives back what nobody holds any more; true when that was anything.
bool collect_payments();

}  // namespace tensor_fusion::sim::cuda
