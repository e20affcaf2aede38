#include <gtest/gtest.h>
#include <unistd.h>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;

TEST(Checkpoint, acts_on_processes_of_the_slice_alone) {
  FakeMemory& fake = FakeMemory::get();
  fake.checkpointed.clear();
  const int own = getpid();
  EXPECT_EQ(cuCheckpointProcessLock(own, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCheckpointProcessCheckpoint(own, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCheckpointProcessRestore(own, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCheckpointProcessUnlock(own, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCheckpointProcessGetState(own, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCheckpointProcessGetRestoreThreadId(own, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fake.checkpointed.size(), 6u);
  const int foreign = getppid();
  EXPECT_EQ(cuCheckpointProcessLock(foreign, nullptr), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuCheckpointProcessCheckpoint(foreign, nullptr), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuCheckpointProcessGetState(foreign, nullptr), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(fake.checkpointed.size(), 6u) << "the driver has heard of a process outside";
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
