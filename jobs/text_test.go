package jobs

import "testing"

func TestEqualDecimalsAreEqualStrings(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1": "1", "1.50": "1.5", "001.0": "1", "-0.10": "-0.1", "-0.00": "0", "0": "0", "100": "100",
		"0.000000000001":           "0.000000000001",
		"12345678901234567890.123": "12345678901234567890.123",
	} {
		if got, err := decimal(in); err != nil || got != want {
			t.Errorf("decimal(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", ".5", "5.", "1,000", "1e9", "0x10", "NaN", "1/3", "1_000", "+1", " 1", "--1"} {
		if got, err := decimal(in); err == nil {
			t.Errorf("decimal(%q) = %q, want an error", in, got)
		}
	}
}

func TestTextOfAPeerIsFitForTheDatabase(t *testing.T) {
	t.Parallel()
	if got, want := printable("Zürich\x00 \xff\n€"), "Zürich? \ufffd?€"; got != want {
		t.Errorf("printable = %q, want %q", got, want)
	}
	for _, bad := range []string{"", "a\x00b", "a\xffb", "a\nb", string(make([]byte, 201))} {
		if isName(bad) {
			t.Errorf("%.20q passes for a name", bad)
		}
	}
}
