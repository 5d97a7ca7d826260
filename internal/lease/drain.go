package lease

// Drain gives up everything that is led.
func (e *Elector) Drain() {}
